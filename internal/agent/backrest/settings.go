package backrest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// Names of the files in Secrets.
const (
	FileKey        = "access-key-id"
	FileKeySecret  = "secret-access-key"
	FileAuthority  = "ca.crt"
	FilePassphrase = "passphrase"
)

// TLS are the files by which hosts know each other, and the common name that they all have.
type TLS struct{ Cert, Key, CA, Name string }

// Host is one that has a PostgreSQL.
type Host struct {
	// Address is empty for this machine itself.
	Address string
	// Config is where that host's own configuration is.
	Config string
	// Data is the data directory, Socket the folder of its socket.
	Data, Socket string
	Port         int
}

// Settings are what a configuration is made of.
type Settings struct {
	Repository agentapi.Repository
	// Secrets is the folder with the repository's secrets.
	Secrets string
	TLS     TLS
	// Work is a folder for locks, the log and the spool.
	Work string
	// HostConfig is where a repository host has its own configuration; empty: where this host has it.
	HostConfig string
	// Stanza is empty if there is none yet. Hosts are those with its PostgreSQL.
	Stanza string
	Hosts  []Host
	// Standby says that the data is read from a standby, which is among the hosts.
	Standby bool
	// ServerAddress and ServerPort are where this host's own server listens.
	ServerAddress string
	ServerPort    int
}

// option is one line of a configuration.
type option struct{ name, value string }

// quick are the options of commands whose failure is to be told soon: each of pgBackRest's attempts takes the timeout several times.
var quick = []option{{"io-timeout", "15"}}

// Configuration is the content of pgbackrest.conf (https://pgbackrest.org/configuration.html). It has secrets.
func (s Settings) Configuration() (string, error) {
	options := []option{
		{"lock-path", filepath.Join(s.Work, "lock")},
		{"log-path", filepath.Join(s.Work, "log")},
		{"spool-path", filepath.Join(s.Work, "spool")},
		{"log-level-console", "off"},
		{"log-level-stderr", "warn"},
		{"log-level-file", "off"},
		{"log-timestamp", "n"},
		{"start-fast", "y"},
		{"stop-auto", "y"},
		{"delta", "n"},
		{"expire-auto", "n"},     // who asks for the backup decides what goes
		{"compress-type", "zst"}, // gz takes several times the CPU for the same size; what is there in gz stays readable
		{"compress-level", "3"},
		{"process-max", "2"},
		{"archive-async", "y"},
		{"archive-timeout", "60"},
		{"io-timeout", "60"},
		{"tls-server-cert-file", s.TLS.Cert},
		{"tls-server-key-file", s.TLS.Key},
		{"tls-server-ca-file", s.TLS.CA},
		{"tls-server-auth", s.TLS.Name + "=*"},
		{"tls-server-port", strconv.Itoa(s.ServerPort)},
		{"tls-server-address", s.ServerAddress},
	}
	repository, err := s.repository()
	if err != nil {
		return "", err
	}
	options = append(options, repository...)
	var out strings.Builder
	out.WriteString("# Written by pgsteward; changes made here are lost.\n[global]\n")
	write(&out, options)
	for _, command := range []string{"archive-push", "info", "stanza-create"} {
		fmt.Fprintf(&out, "\n[global:%s]\n", command)
		write(&out, quick)
	}
	if s.Stanza != "" {
		fmt.Fprintf(&out, "\n[%s]\n", s.Stanza)
		write(&out, s.hosts())
	}
	return out.String(), nil
}

func write(out *strings.Builder, options []option) {
	for _, o := range options {
		fmt.Fprintf(out, "%s=%s\n", o.name, strings.NewReplacer("\n", "", "\r", "").Replace(o.value))
	}
}

// hosts are the options of the hosts with the PostgreSQL.
func (s Settings) hosts() []option {
	var options []option
	for n, host := range s.Hosts {
		pg := "pg" + strconv.Itoa(n+1)
		options = append(options,
			option{pg + "-path", host.Data}, option{pg + "-port", strconv.Itoa(host.Port)}, option{pg + "-socket-path", host.Socket},
			option{pg + "-user", "postgres"})
		if host.Address == "" {
			continue
		}
		options = append(options,
			option{pg + "-host", host.Address}, option{pg + "-host-type", "tls"}, option{pg + "-host-port", strconv.Itoa(s.ServerPort)},
			option{pg + "-host-config", host.Config},
			option{pg + "-host-ca-file", s.TLS.CA}, option{pg + "-host-cert-file", s.TLS.Cert}, option{pg + "-host-key-file", s.TLS.Key})
	}
	if s.Standby {
		options = append(options, option{"backup-standby", "y"})
	}
	return options
}

// repository are the options of the repository.
func (s Settings) repository() ([]option, error) {
	r := s.Repository
	options := []option{{"repo1-path", "/" + strings.Trim(r.Path, "/")}, {"repo1-bundle", "y"}}
	switch r.Kind {
	case agentapi.RepositoryFolder:
	case agentapi.RepositoryHost:
		options = []option{
			{"repo1-host", r.Host}, {"repo1-host-type", "tls"}, {"repo1-host-port", strconv.Itoa(s.ServerPort)},
			// its own is where ours is; without this it would read the one of its package
			{"repo1-host-config", cmp.Or(s.HostConfig, filepath.Join(s.Work, HostConfiguration+".conf"))},
			{"repo1-host-ca-file", s.TLS.CA}, {"repo1-host-cert-file", s.TLS.Cert}, {"repo1-host-key-file", s.TLS.Key},
		}
		return options, nil // the rest is the host's own
	default:
		bucket, err := s.bucket()
		if err != nil {
			return nil, err
		}
		options = append(options, bucket...)
	}
	if r.Encrypted {
		passphrase, err := s.secret(r.EncryptionSecret, FilePassphrase)
		if err != nil {
			return nil, err
		}
		options = append(options, option{"repo1-cipher-type", "aes-256-cbc"}, option{"repo1-cipher-pass", passphrase})
	}
	return options, nil
}

// secret is the content of the file that a Secret's key of that name is mounted as.
func (s Settings) secret(name, key string) (string, error) { return s.secretIn(key, name, key) }

// secretIn is the content of the file that a Secret's key is mounted as.
func (s Settings) secretIn(file, name, key string) (string, error) {
	content, err := os.ReadFile(filepath.Join(s.Secrets, file))
	text := strings.TrimSpace(string(content))
	if err != nil || text == "" {
		return "", fmt.Errorf("the Secret %s has no key %s, or does not exist: create it with that key", name, key)
	}
	return text, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
