package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// manifest is one "PUT /v2/NAME/manifests/REFERENCE" as it is kept on disk.
type manifest struct {
	Path, ContentType string
	Body              []byte
}

// store is a handler in front of a registry that holds its manifests in memory: it writes down every manifest that the
// registry accepts, and puts them again when it starts.
type store struct {
	dir  string
	next http.Handler
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.URL.Path, "/manifests/") {
		s.next.ServeHTTP(w, r)
		return
	}
	switch r.Method {
	case http.MethodPut:
		s.put(w, r)
	case http.MethodDelete:
		s.next.ServeHTTP(w, r)
		_ = os.Remove(s.file(r.URL.Path))
	default:
		// The time of the last use, for collect; there may be no such manifest.
		now := time.Now()
		_ = os.Chtimes(s.file(r.URL.Path), now, now)
		s.next.ServeHTTP(w, r)
	}
}

// file returns where the manifest of a path is kept.
func (s *store) file(path string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%x.json", sha256.Sum256([]byte(path))))
}

func (s *store) put(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m := manifest{Path: r.URL.Path, ContentType: r.Header.Get("Content-Type"), Body: body}
	answer := s.forward(m)
	if answer.Code == http.StatusCreated {
		if err := s.write(m); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	for key, values := range answer.Header() {
		w.Header()[key] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// forward puts a manifest into the registry behind.
func (s *store) forward(m manifest) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPut, m.Path, bytes.NewReader(m.Body))
	r.Header.Set("Content-Type", m.ContentType)
	answer := httptest.NewRecorder()
	s.next.ServeHTTP(answer, r)
	return answer
}

func (s *store) write(m manifest) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	partial, err := os.CreateTemp(s.dir, "partial-")
	if err != nil {
		return err
	}
	_, err = partial.Write(data)
	if closing := partial.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(partial.Name(), s.file(m.Path))
	}
	return err
}

// replay gives the registry behind all the manifests on disk: images before the indexes that name them.
func (s *store) replay() error {
	all, err := readManifests(s.dir)
	if err != nil {
		return err
	}
	sort.Slice(all, func(i, j int) bool { return !all[i].isIndex() && all[j].isIndex() })
	for _, m := range all {
		if answer := s.forward(m); answer.Code != http.StatusCreated {
			fmt.Fprintf(os.Stderr, "cannot restore %s: %s\n", m.Path, answer.Body)
		}
	}
	return nil
}

func (m manifest) isIndex() bool {
	return strings.Contains(m.ContentType, "index") || strings.Contains(m.ContentType, "manifest.list")
}

func readManifests(dir string) ([]manifest, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []manifest
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var m manifest
		if err := json.Unmarshal(data, &m); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, m)
	}
	return all, nil
}
