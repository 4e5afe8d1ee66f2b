package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"path"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/console/view"
)

//go:embed templates/*.html assets/*
var files embed.FS

// pageNames are the templates that fill the layout.
var pageNames = []string{"login", "fleet", "cluster", "upgrade", "backups", "action", "problem"}

// pages are the templates and the files beside them.
type pages struct {
	templates map[string]*template.Template
	version   string
}

func newPages() (*pages, error) {
	p := &pages{templates: map[string]*template.Template{}}
	entries, err := files.ReadDir("assets")
	if err != nil {
		return nil, fmt.Errorf("reading the assets: %w", err)
	}
	hash := sha256.New()
	for _, entry := range entries {
		content, err := files.ReadFile(path.Join("assets", entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading the assets: %w", err)
		}
		hash.Write(content)
	}
	p.version = hex.EncodeToString(hash.Sum(nil))[:12]
	for _, name := range pageNames {
		t, err := template.New("layout.html").Funcs(p.functions()).ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/"+name+".html")
		if err != nil {
			return nil, fmt.Errorf("reading the templates: %w", err)
		}
		p.templates[name] = t
	}
	return p, nil
}

// functions are what templates call.
func (p *pages) functions() template.FuncMap {
	return template.FuncMap{
		"asset":      func(name string) string { return "/assets/" + name + "?v=" + p.version },
		"bytes":      view.Bytes,
		"ago":        view.Ago,
		"iso":        func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"stamp":      func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") },
		"backupTone": view.BackupTone,
		"add":        func(a, b int) int { return a + b },
		"moment":     momentOf,
		"final":      func(phase v1.UpgradePhase) bool { return phase.Final() },
	}
}

// moment is a time on a page that has a clock.
type moment struct{ T, Now time.Time }

// momentOf takes a time of any of the kinds that there are.
func momentOf(t any, now time.Time) (moment, error) {
	switch t := t.(type) {
	case time.Time:
		return moment{t, now}, nil
	case *time.Time:
		return moment{*t, now}, nil
	case metav1.Time:
		return moment{t.Time, now}, nil
	case *metav1.Time:
		return moment{t.Time, now}, nil
	}
	return moment{}, fmt.Errorf("%T is no time", t)
}

// show writes a page as a whole or not at all.
func (p *pages) show(w http.ResponseWriter, code int, name string, data any) {
	var text bytes.Buffer
	if err := p.templates[name].Execute(&text, data); err != nil {
		http.Error(w, "the page cannot be shown: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(text.Bytes())
}

type problemData struct {
	page
	Message string
}

func (p *pages) problem(w http.ResponseWriter, code int, title, message string) {
	p.show(w, code, "problem", problemData{page: page{Title: title}, Message: message})
}

// assets serves the files, which change their address when they change.
func (p *pages) assets() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("file")
		content, err := files.ReadFile("assets/" + name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
		if r.URL.Query().Get("v") == p.version {
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		_, _ = w.Write(content)
	})
}
