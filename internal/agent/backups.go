package agent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	// dropWAL is the archive_command of a cluster whose image cannot make backups, and of a seed: nothing is archived, and nothing kept for it.
	dropWAL = "true"
	// keepWAL is that of a cluster whose repository cannot be used yet: PostgreSQL keeps WAL, and tries again.
	keepWAL = "false"
	// archiverInterval is how often the archiver is asked how it gets on.
	archiverInterval = 2 * time.Second
	// backupServerFirst and backupServerLast bound the pause before the server of backups is started again.
	backupServerFirst = time.Second
	backupServerLast  = 30 * time.Second
)

// backups is what the loop remembers about backups.
type backups struct {
	tool   *backrest.Tool
	runner *backrest.Runner
	// missing is why there is no tool.
	missing error
	// command is the archive_command; empty before it is known.
	command string
	// stanza is that of the data here, usable says that the configuration is written.
	stanza string
	usable bool

	// server serves other hosts, reload makes it read its configuration again; it may begin again at next.
	server *task
	reload func()
	next   time.Time
	fails  int

	archive   *agentapi.Archive
	askedAt   time.Time
	rearchive time.Time // the start of the server whose WAL was seen to
	last      lastWAL
	saved     savedWAL
}

// backupWork is the folder of pgBackRest's files, holdArchive the file that ends archiving while it exists.
func (p Paths) backupWork() string  { return filepath.Join(p.Run, "backrest") }
func (p Paths) holdArchive() string { return filepath.Join(p.Run, "archive.hold") }

// backupSettings are those of this host, with the PostgreSQL systems of the hosts.
func (a *Agent) backupSettings(stanza string, hosts ...backrest.Host) backrest.Settings {
	paths := a.options.Paths
	address := a.options.ListenAddress
	if address == "" {
		address = "*"
	}
	return backrest.Settings{
		Repository: a.config.Backup.Repository, Secrets: paths.secret(naming.DirBackup, ""), HostConfig: a.options.HostConfig,
		TLS: backrest.TLS{
			Cert: paths.secret(naming.DirServer, naming.KeyTLSCert), Key: paths.secret(naming.DirServer, naming.KeyTLSKey),
			CA: paths.secret(naming.DirServer, naming.KeyCACert), Name: naming.ServerCertificate(a.config.Cluster),
		},
		Stanza: stanza, Hosts: hosts, ServerAddress: address, ServerPort: a.options.Ports.Backup,
	}
}

// backupHost is the instance as a host with a PostgreSQL.
func (a *Agent) backupHost(instance string) backrest.Host {
	host := backrest.Host{Data: a.volume.Dir(), Socket: a.options.Paths.Run, Port: a.options.Ports.Postgres}
	if instance != a.options.Instance {
		host.Address = a.hostOf(instance)
		host.Config = filepath.Join(a.options.Paths.backupWork(), backrest.HostConfiguration+".conf")
	}
	if a.options.BackupHost != nil {
		host = a.options.BackupHost(instance, host)
	}
	return host
}

// archiveCommand is what PostgreSQL is to do with WAL that is complete; empty: nothing.
func (a *Agent) archiveCommand() string {
	if a.config.Backup == nil {
		return ""
	}
	if a.backups.command == "" {
		return keepWAL
	}
	return a.backups.command
}

// prepareBackups makes all that archiving needs, before the server's settings are made.
func (a *Agent) prepareBackups(ctx, background context.Context, w *world) {
	b := &a.backups
	if a.config.Backup == nil || !w.found.Complete {
		b.server.stop()
		b.server, b.command, b.archive, b.usable = nil, "", nil, false
		if a.config.Backup == nil {
			a.forgetSavedWAL()
		}
		return
	}
	if b.tool == nil && !a.findBackupTool() {
		b.command = dropWAL
		return
	}
	b.stanza = backup.Stanza(a.major, w.found.Control.SystemIdentifier)
	settings := a.backupSettings(b.stanza, a.backupHost(a.options.Instance))
	changed, err := b.tool.Write(backrest.HostConfiguration, settings)
	if b.usable = err == nil; !b.usable {
		b.command = keepWAL
		b.runner.Fail(err.Error())
		return
	}
	b.command = b.tool.ArchiveCommand(backrest.HostConfiguration, b.stanza, a.options.Paths.holdArchive())
	a.serveBackups(background, changed)
	a.pushSavedWAL(background, w)
	if changed {
		b.runner.Doubt() // credentials, say: whether they are right is told at once, not when WAL is to be archived
	}
	if w.decisionHoldsPrimary(a) && a.config.Backup.Repository.Kind != agentapi.RepositoryHost {
		b.runner.Keep(ctx, b.stanza, settings.Remote(), w.now)
	}
}

// decisionHoldsPrimary says whether the server runs as the primary here.
func (w *world) decisionHoldsPrimary(a *Agent) bool {
	return w.state != nil && !w.state.InRecovery && w.server.Writable && w.server.Stopping == 0 && a.view().Holder == a.options.Instance
}

// findBackupTool looks for pgBackRest in the image, once.
func (a *Agent) findBackupTool() bool {
	b := &a.backups
	if b.missing == nil {
		tool, err := a.backupTool()
		if err != nil {
			a.log.Error("Backups cannot be made", "error", err)
			b.missing = err
			return false
		}
		b.tool = tool
		b.runner = &backrest.Runner{Tool: tool, Log: a.log, Changed: a.poke}
	}
	return b.missing == nil
}

func (a *Agent) backupTool() (*backrest.Tool, error) {
	program, err := backrest.Find()
	if err != nil {
		return nil, err
	}
	return &backrest.Tool{Children: a.children, Program: program, Work: a.options.Paths.backupWork(), Chown: a.chown}, nil
}

// serveBackups keeps a server by which other hosts read the data here, and has it read what has changed.
func (a *Agent) serveBackups(background context.Context, changed bool) {
	b := &a.backups
	if err, isNew := b.server.result(); isNew && err != nil {
		b.next = time.Now().Add(min(backupServerFirst<<min(b.fails, 10), backupServerLast))
		b.fails++
		a.log.Warn("The server of backups ended", "error", err)
	}
	switch {
	case !b.server.isDone():
		if changed && b.reload != nil {
			b.reload()
		}
	case !time.Now().Before(b.next):
		started := make(chan func(), 1)
		tool := b.tool
		b.server = a.begin(background, "pgbackrest server", func(ctx context.Context) error {
			return tool.Serve(ctx, backrest.HostConfiguration, func(reload func()) { started <- reload })
		})
		select {
		case b.reload = <-started:
		case <-b.server.done:
		}
	}
}

// reloadBackupServer has it read new certificates.
func (a *Agent) reloadBackupServer() {
	if b := &a.backups; b.reload != nil && !b.server.isDone() {
		b.reload()
	}
}

// stopBackups ends what uses the repository, but for PostgreSQL's archiver.
func (a *Agent) stopBackups() {
	if a.backups.runner != nil {
		a.backups.runner.Stop()
	}
	a.backups.server.stop()
	a.backups.saved.push.stop()
}

// describeBackups adds what there is to say of backups.
func (a *Agent) describeBackups(status *agentapi.Status) {
	b := &a.backups
	if a.config == nil || a.config.Backup == nil {
		return
	}
	status.Archive = b.archive
	if b.missing != nil {
		status.Repository = &agentapi.RepositoryReport{Error: b.missing.Error(), Unsupported: true}
		return
	}
	if b.runner != nil {
		status.Repository, status.Backup, status.Removal = b.runner.Report(), b.runner.Run(), b.runner.Removal()
	}
}
