package repository

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
	"github.com/pgsteward/pgsteward/internal/agent/serve"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
)

const roundInterval = time.Second

// Options are what a repository host is started with.
type Options struct {
	// Name is under which the operator knows it; Pod and PodUID are its Pod's.
	Name, PodUID, Version string
	// Data is the volume, Run a folder for files of the process, Config the configuration's file and Secrets the Secrets' folder.
	Data, Run, Config, Secrets string
	// InstanceRun is the instances' Run.
	InstanceRun string
	// InstanceData is the instances' volume.
	InstanceData string
	// ListenAddress is where everything listens; empty: on all addresses.
	ListenAddress string
	// AgentPort, HealthPort and BackupPort are where it listens, PostgresPort that of the instances.
	AgentPort, HealthPort, BackupPort, PostgresPort int
	// Credential is what pgBackRest runs as, if that is another user than this process.
	Credential *syscall.Credential
	// HostOf changes where an instance's data is; nil: all have it in the same place. It is for tests, in which they do not.
	HostOf func(instance string, host backrest.Host) backrest.Host
	Output io.Writer
}

// Host serves one repository.
type Host struct {
	options  Options
	log      *slog.Logger
	children *supervise.Children
	board    *serve.Board
	health   *serve.Health
	tool     *backrest.Tool
	runner   *backrest.Runner
	kick     chan struct{}

	mu     sync.Mutex
	config *agentapi.Config
	ready  bool // guarded by mu, as config is

	sum    [sha256.Size]byte
	server server
}

// New is a repository host that does nothing yet.
func New(options Options) (*Host, error) {
	program, err := backrest.Find()
	if err != nil {
		return nil, err
	}
	h := &Host{
		options: options, children: &supervise.Children{Credential: options.Credential}, health: serve.NewHealth(time.Now),
		log:   slog.New(slog.NewJSONHandler(options.Output, nil)).With("logger", "repository", "instance", options.Name),
		board: serve.NewBoard(agentapi.Status{Instance: options.Name, PodUID: options.PodUID, AgentVersion: options.Version, State: agentapi.StateWaiting}),
		kick:  make(chan struct{}, 1),
	}
	h.tool = &backrest.Tool{Children: h.children, Program: program, Work: filepath.Join(options.Run, "backrest"), Chown: h.chown}
	h.runner = &backrest.Runner{Tool: h.tool, Log: h.log, Changed: h.poke}
	return h, nil
}

func (h *Host) poke() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

func (h *Host) chown(path string) error {
	if h.options.Credential == nil {
		return nil
	}
	return os.Chown(path, int(h.options.Credential.Uid), int(h.options.Credential.Gid))
}

// Run serves until the context ends.
func (h *Host) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { h.children.Reap(ctx) })
	certificates := serve.Certificates{Dir: filepath.Join(h.options.Secrets, naming.DirServer)}
	api := &serve.API{
		Board: h.board, Log: h.log, Backup: h.askBackup, CancelBackup: h.cancelBackup, RemoveBackup: h.askRemoval,
		Fresh: func(context.Context) (agentapi.Status, error) {
			status, _ := h.board.Status()
			return status, nil
		},
	}
	work.Go(func() {
		serve.Run(ctx, h.address(h.options.AgentPort), api.Handler(), certificates.Server(), h.log)
	})
	work.Go(func() {
		serve.Run(ctx, h.address(h.options.HealthPort), h.health.Handler(prometheus.NewRegistry()), nil, h.log)
	})
	work.Go(func() { h.serve(ctx) })
	defer h.runner.Stop()
	h.log.Info("Starting the repository host", "version", h.options.Version)
	for ctx.Err() == nil {
		h.round(ctx)
		timer := time.NewTimer(roundInterval)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-h.kick:
		}
		timer.Stop()
	}
	return nil
}

func (h *Host) address(port int) string {
	return net.JoinHostPort(h.options.ListenAddress, strconv.Itoa(port))
}

// round looks at the configuration, the repository and the server, and says how it stands.
func (h *Host) round(ctx context.Context) {
	why := h.configure(ctx)
	status := agentapi.Status{
		Instance: h.options.Name, PodUID: h.options.PodUID, AgentVersion: h.options.Version, State: agentapi.StateRunning, Ready: why == "",
		Repository: h.runner.Report(), Backup: h.runner.Run(), Removal: h.runner.Removal(), FilesHash: h.filesHash(),
	}
	if why != "" {
		status.State = agentapi.StateWaiting
	}
	h.board.Set(status)
	h.health.Beat(true, why)
}

// configure puts the configuration in force; else it says what it waits for.
func (h *Host) configure(ctx context.Context) string {
	config, err := h.readConfig()
	if err != nil {
		return err.Error()
	}
	if config.Backup == nil {
		return "the cluster has no spec.backup"
	}
	stanza := ""
	if major, err := strconv.Atoi(config.Version); err == nil && config.SystemIdentifier != "" {
		stanza = backup.Stanza(major, config.SystemIdentifier)
	}
	hosts := make([]backrest.Host, 0, len(config.Members))
	for _, member := range config.Members {
		hosts = append(hosts, h.hostOf(config, member.Name))
	}
	folder := filepath.Join(h.options.Data, config.Backup.Repository.Path)
	if err := errors.Join(os.MkdirAll(folder, 0o700), h.chown(folder)); err != nil {
		return "preparing the volume: " + err.Error()
	}
	changed, err := h.tool.Write(backrest.HostConfiguration, h.settings(config, stanza, hosts...))
	if err != nil {
		h.runner.Fail(err.Error())
		return err.Error()
	}
	h.mu.Lock()
	h.config, h.ready = config, stanza != ""
	h.mu.Unlock()
	if changed || h.certificatesChanged() {
		h.server.again()
	}
	if stanza != "" {
		h.runner.Keep(ctx, stanza, "", time.Now())
	}
	return ""
}

// filesHash is the hash of what is mounted here, as the operator computes it.
func (h *Host) filesHash() string {
	read := func(path string) []byte {
		content, _ := os.ReadFile(path) // what is missing makes another hash
		return content
	}
	secret := func(key string) []byte { return read(filepath.Join(h.options.Secrets, naming.DirServer, key)) }
	return agentapi.Files{
		Config: read(h.options.Config), CACert: secret(naming.KeyCACert), ServerCert: secret(naming.KeyTLSCert), ServerKey: secret(naming.KeyTLSKey),
	}.Hash()
}

func (h *Host) readConfig() (*agentapi.Config, error) {
	content, err := os.ReadFile(h.options.Config)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	config := &agentapi.Config{}
	if err := json.Unmarshal(content, config); err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return config, nil
}

// settings are those of the folder on the volume.
func (h *Host) settings(config *agentapi.Config, stanza string, hosts ...backrest.Host) backrest.Settings {
	secret := func(key string) string { return filepath.Join(h.options.Secrets, naming.DirServer, key) }
	repository := config.Backup.Repository
	repository.Kind, repository.Path = agentapi.RepositoryFolder, filepath.Join(h.options.Data, repository.Path)
	address := h.options.ListenAddress
	if address == "" {
		address = "*"
	}
	return backrest.Settings{
		Repository: repository, Secrets: filepath.Join(h.options.Secrets, naming.DirBackup),
		TLS: backrest.TLS{
			Cert: secret(naming.KeyTLSCert), Key: secret(naming.KeyTLSKey), CA: secret(naming.KeyCACert), Name: naming.ServerCertificate(config.Cluster),
		},
		Stanza: stanza, Hosts: hosts, ServerAddress: address, ServerPort: h.options.BackupPort,
	}
}

// hostOf is the instance as a host with a PostgreSQL.
func (h *Host) hostOf(config *agentapi.Config, instance string) backrest.Host {
	host := backrest.Host{
		Address: naming.InstanceHost(config.Cluster, config.Namespace, instance),
		Config:  filepath.Join(h.options.InstanceRun, "backrest", backrest.HostConfiguration+".conf"),
		Data:    filepath.Join(h.options.InstanceData, "pgdata", config.Version), Socket: h.options.InstanceRun, Port: h.options.PostgresPort,
	}
	for _, member := range config.Members {
		if member.Name == instance && member.Host != "" {
			host.Address = member.Host
		}
	}
	if h.options.HostOf != nil {
		host = h.options.HostOf(instance, host)
	}
	return host
}

// askBackup begins a backup, or says why it does not.
func (h *Host) askBackup(request agentapi.BackupRequest) error {
	h.mu.Lock()
	config, ready := h.config, h.ready
	h.mu.Unlock()
	if config == nil || !ready {
		return errors.New("the repository is not ready yet")
	}
	major, err := strconv.Atoi(config.Version)
	if err != nil {
		return fmt.Errorf("version %s is no major of PostgreSQL", config.Version)
	}
	hosts := []backrest.Host{h.hostOf(config, request.Primary)}
	if request.Standby != "" {
		hosts = append(hosts, h.hostOf(config, request.Standby))
	}
	stanza := backup.Stanza(major, config.SystemIdentifier)
	settings := h.settings(config, stanza, hosts...)
	settings.Standby = request.Standby != ""
	return h.runner.Begin(context.Background(), backrest.Job{
		Request: request, Stanza: stanza, Settings: settings, Retention: time.Duration(config.Backup.RetentionDays) * 24 * time.Hour,
	})
}

// askRemoval begins to remove a backup, or says why it does not.
func (h *Host) askRemoval(request agentapi.RemovalRequest) error {
	h.mu.Lock()
	config, ready := h.config, h.ready
	h.mu.Unlock()
	if config == nil || !ready {
		return errors.New("the repository is not ready yet")
	}
	if major, err := strconv.Atoi(config.Version); err != nil || request.Stanza != backup.Stanza(major, config.SystemIdentifier) {
		return fmt.Errorf("the cluster's backups are not in the stanza %s any more", request.Stanza)
	}
	return h.runner.Remove(context.Background(), request)
}

func (h *Host) cancelBackup(request agentapi.BackupRequest) error {
	h.runner.Cancel(request.ID, backrest.ErrCancelled)
	return nil
}
