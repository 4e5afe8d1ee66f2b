package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
	"github.com/pgsteward/pgsteward/internal/agent/conf"
	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/lease"
	"github.com/pgsteward/pgsteward/internal/agent/logs"
	"github.com/pgsteward/pgsteward/internal/agent/peer"
	"github.com/pgsteward/pgsteward/internal/agent/serve"
	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Agent runs one instance.
type Agent struct {
	options Options
	log     *slog.Logger
	output  *logs.Output

	children *supervise.Children
	server   *supervise.Server
	reader   *logs.Reader
	board    *serve.Board
	health   *serve.Health
	peers    *peer.Poller
	// observer asks for the state, admin changes things: a change that waits must not keep the state from being seen.
	observer *sql.Client
	admin    *sql.Client
	kick     chan struct{}
	// background is everything that runs until the agent has shut PostgreSQL down.
	background sync.WaitGroup

	// crashes counts how often PostgreSQL ended without being told to.
	crashes atomic.Int64
	// wasSetUp says whether the data of the primary that runs was set up before: roles, passwords and database are there.
	wasSetUp atomic.Bool

	// watchdog ends the server if this process does not when it must; nil if there is none.
	watchdog *supervise.Watchdog
	// hosts are those of all members by name, as the configuration has them.
	hosts atomic.Pointer[map[string]string]

	// keeper is set once, under mu, when the Lease's name is known.
	mu     sync.Mutex
	keeper *lease.Keeper

	requests  requests
	switching switching
	// backupsAsked are asked for; backupRunner makes them, and is set once, under mu.
	backupsAsked chan backupAsked
	backupRunner *backrest.Runner
	// programDigest is Status.AgentDigest.
	programDigest atomic.Pointer[string]
	// said is what a major upgrade is doing just now, seen what was last seen of it.
	said atomic.Pointer[string]
	seen atomic.Pointer[generationSeen]

	instance
	memory
}

// instance is what the agent has once it knows its configuration. It belongs to the loop alone, like memory.
type instance struct {
	files  watcher
	config *agentapi.Config
	// major is that of programs, volume, conf and seeder.
	major    int
	programs datadir.Programs
	volume   *datadir.Volume
	conf     *conf.Files
	seeder   *datadir.Seeder
	// programsProblem is why the image's programs cannot be used.
	programsProblem *agentapi.Problem
}

// memory is what the loop remembers from one round to the next. Nothing of it is needed to decide rightly after a restart.
type memory struct {
	// seed makes data, setup makes roles and slots, labels labels Pods; each is nil before the first time.
	seed     *task
	setup    *task
	labels   *task
	restarts restarts
	pulse    pulse
	clones   clones
	back     comeback
	news     upstreamNews
	// slots is the task that keeps a standby's slots; slotsNext is when it may begin again.
	slots     *task
	backups   backups
	inPlace   inPlace
	slotsNext time.Time
	timelines timelines
	syncing   syncing
	syncFlag  syncFlag
	// admits says that a session was seen to begin since the server was started or read its configuration.
	admits bool
	disk   disk
	// reloadPID is the server that could not be reloaded yet.
	reloadPID int
	// reloadedAt is when the running server was last told to read its configuration again.
	reloadedAt time.Time

	handover handover
	// giving gives the lease away; gave says that it has. ending says that the Pod ends.
	giving *task
	gave   bool
	ending bool
	// seeking asks for promises to this Pod; promised is who gave one, by when it was asked, as lease.Boottime has it.
	seeking    *task
	seekingGot map[string]time.Duration
	promised   map[string]time.Duration
	soughtAt   time.Time

	restartCheckpoint *task
	// sync is what is to be published in the lease; nil: what is there already.
	sync *lease.Sync
	// moment is from when on answers of members count.
	moment string

	// volumeSince is since when the volume is this agent's: no process of an earlier one runs.
	volumeSince   time.Time
	keeperSince   time.Time
	noHolderSince time.Time
	// downSince is since when PostgreSQL is not there although this instance should be primary.
	downSince time.Time
	// failuresBefore are those of the failures in a row that came before this instance was to run as the primary.
	failuresBefore int
	force          force
	// toRun says that the last decision was to run as the primary, or to give up doing so.
	toRun        bool
	lastStreamed time.Time
	runningSince time.Time
	promotedAt   time.Time
	// promoting says that the server was told to end recovery, and was not seen to have done it.
	promoting bool
	// answered is the start of the last server that answered.
	answered time.Time
	// received is the furthest timeline that the server which was started then was seen to receive.
	received struct {
		started  time.Time
		timeline int64
	}
	// upstream is whom the server was told to follow.
	upstream string
	// reclone is why the data must be copied again although there is some.
	reclone    string
	volumeSize int64

	// setupDone is what was set up last, setupPID the server on which it was.
	setupDone string
	setupAt   time.Time
	setupPID  int
	// setupFailed counts the setups that failed in a row.
	setupFailed failures

	// liveSeen is the live version in the lease, as it was seen in this round.
	liveSeen string
	// upgradeStatus is what there is to say of a major upgrade; upgradeWork is that of the live primary.
	upgradeStatus agentapi.UpgradeStatus
	upgradeWork   upgradeWork
	preflights    preflights
	// confClosed says that the configuration that was written last keeps clients out.
	confClosed bool
	// besides is what is done while this instance is not of the live generation; detach is set while its server is started, or its
	// configuration written, as the detached one. settling removes what an upgrade left.
	besides    aside
	detach     bool
	settling   *task
	settleNext time.Time
	// outside says that this instance was not of the live generation in this round.
	outside bool
	// expected is until when the writes are expected here, although it is outside; nil: they are not.
	expected atomic.Pointer[time.Time]
	// stoppedAt is where the source of this instance's data has stopped, so that it can be converted; nil: it has not.
	stoppedAt atomic.Pointer[agentapi.UpgradeExpectRequest]
	// labelled are the roles that were put on Pods last, as a text.
	labelled     string
	labelledAt   time.Time
	lastDecision string
}

// New is an agent that does nothing yet.
func New(options Options) *Agent {
	output := logs.NewOutput(options.Output)
	log := slog.New(slog.NewJSONHandler(output, &slog.HandlerOptions{Level: options.LogLevel}))
	a := &Agent{
		options:      options,
		output:       output,
		log:          log.With("logger", "agent", "instance", options.Instance),
		reader:       logs.NewReader(log),
		kick:         make(chan struct{}, 1),
		backupsAsked: make(chan backupAsked, 4),
		children: &supervise.Children{
			Credential: options.Credential,
		},
		health:   serve.NewHealth(time.Now),
		observer: sql.NewClient(options.Paths.Run, options.Ports.Postgres),
		admin:    sql.NewClient(options.Paths.Run, options.Ports.Postgres),
		board: serve.NewBoard(agentapi.Status{
			Instance: options.Instance, PodUID: options.PodUID, AgentVersion: options.Version, State: agentapi.StateWaiting,
		}),
	}
	a.server = supervise.NewServer(a.children, a.reader.Line, a.poke)
	if len(options.Watchdog) > 0 {
		a.watchdog = supervise.NewWatchdog(a.children, options.Watchdog, a.log)
		a.server.Watch = a.watchdog.Watch
	}
	a.peers = peer.NewPoller(func() (peer.Asker, error) { return a.peerClient() }, lease.Boottime, a.poke)
	return a
}

func (a *Agent) certificates() serve.Certificates {
	return serve.Certificates{Dir: a.options.Paths.secret(naming.DirServer, "")}
}

// poke makes the loop go round at once.
func (a *Agent) poke() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// Run runs the instance until the context ends; then it stops PostgreSQL in the right order and returns. An error means that
// it could not even begin.
func (a *Agent) Run(ctx context.Context) error {
	go a.output.Run() // waited for within a bound: the output may block for ever
	defer a.output.Close(flushTimeout)
	pipes, err := logs.Open(a.options.Paths.logs(), a.chown)
	if err != nil {
		return err
	}

	// The background outlives ctx: the lease is renewed while PostgreSQL stops.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer a.background.Wait()
	defer stop()
	a.run(func() { a.children.Reap(background) })
	for _, pipe := range pipes {
		a.run(func() { a.reader.Run(background, pipe) })
	}
	a.run(func() { a.peers.Run(background) })
	if a.watchdog != nil {
		a.run(func() { a.watchdog.Run(background) })
	}
	api := &serve.API{
		Board: a.board, Log: a.log,
		Fresh: a.freshStatus, Promise: a.promise, Switchover: a.askSwitchover, HandOver: a.askHandOver,
		Restart: a.askRestart, UpgradeSwitchover: a.askUpgradeSwitchover, UpgradeExpect: a.askUpgradeExpect,
		Backup: a.askBackup, CancelBackup: a.cancelBackup, RemoveBackup: a.askRemoval,
	}
	a.run(func() {
		serve.Run(background, a.address(a.options.Ports.Agent), api.Handler(), a.certificates().Server(), a.log)
	})
	metrics := serve.NewMetrics(a.board, a.numbers)
	a.run(func() {
		serve.Run(background, a.address(a.options.Ports.Health), a.health.Handler(metrics), nil, a.log)
	})

	a.run(a.digest)
	a.log.Info("Starting the agent", "version", a.options.Version, "podUID", a.options.PodUID)
	lock := a.lockVolume(ctx)
	if lock == nil {
		return nil
	}
	defer func() { _ = lock.Close() }()
	a.volumeSince = time.Now()
	a.loop(ctx, background)
	a.shutdown(background)
	return nil
}

// lockVolume waits until no other process works on the volume: another Pod of this instance may still be stopping there. What
// else keeps it from being locked is a problem that somebody must solve; until then the Pod stays and says it. It returns nil
// when the context has ended.
func (a *Agent) lockVolume(ctx context.Context) *os.File {
	ticker := time.NewTicker(roundInterval)
	defer ticker.Stop()
	said := ""
	for {
		lock, err := datadir.Lock(a.options.Paths.Data)
		if err == nil {
			return lock
		}
		if said != err.Error() {
			said = err.Error()
			a.log.Warn("Waiting for the data volume", "error", err)
		}
		status, _ := a.board.Status()
		status.State, status.Problem = agentapi.StateWaiting, nil
		inUse := errors.Is(err, datadir.ErrInUse)
		if !inUse {
			status.State, status.Problem = agentapi.StateFailed, problem(reasonServer, err.Error())
		}
		a.board.Set(status)
		a.health.Beat(!inUse, err.Error())
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (a *Agent) run(do func()) { a.background.Go(do) }

func (a *Agent) address(port int) string {
	return net.JoinHostPort(a.options.ListenAddress, strconv.Itoa(port))
}

func (a *Agent) loop(ctx, background context.Context) {
	for ctx.Err() == nil {
		a.pause(ctx, a.round(ctx, background))
	}
}

// pause waits before the next round, unless something happens.
func (a *Agent) pause(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-a.kick:
	}
}

// shutdown stops PostgreSQL. A primary writes a checkpoint first, while clients still work, so that the shutdown is short; then the
// Lease is handed to another instance, or is told that this Pod writes no more.
func (a *Agent) shutdown(ctx context.Context) {
	a.log.Info("Stopping")
	began := time.Now()
	a.gave = false // what it gave away in an earlier switchover
	for _, task := range []*task{
		a.switching.task, a.upgradeWork.task, a.upgradeWork.statistics, a.besides.work, a.besides.look, a.besides.keep,
		a.seed, a.setup, a.labels, a.slots,
	} {
		task.stop()
	}
	if a.inPlace.making { // what only removes may take long, and can be left at any moment
		a.inPlace.task.stop()
	}
	a.stopBackups()
	keeper, wasWritable := a.leaseKeeper(), a.server.Snapshot().Writable
	wrote := keeper != nil && keeper.View().Holding
	a.run(func() { a.beatWhileStopping(ctx) })
	if wrote && wasWritable {
		a.handOverAtEnd(ctx, began)
	}
	status, _ := a.board.Status()
	status.State, status.Ready = agentapi.StateStopping, false
	a.board.Set(status)
	a.observer.Close()
	a.admin.Close()
	if a.archivingFails() {
		a.holdArchive(true)
	}
	a.server.StopAndWait(ctx, max(time.Second, a.options.StopBound-time.Since(began)))
	if wrote && !a.gave {
		release, cancel := context.WithTimeout(ctx, releaseTimeout)
		defer cancel()
		if err := keeper.Stopped(release); err != nil {
			a.log.Warn("Telling the lease that PostgreSQL has stopped failed", "error", err)
		}
	}
	a.log.Info("Stopped", "took", time.Since(began).String())
}

// handOverAtEnd goes on with rounds until the lease was given away, within the bound for a shutdown.
func (a *Agent) handOverAtEnd(ctx context.Context, began time.Time) {
	a.gave, a.ending = false, true
	a.keeper.Renew() // is this Pod still known?
	a.beginHandover(election.Termination, "", began)
	for ctx.Err() == nil && !a.gave && time.Since(began) < a.options.StopBound {
		pause := a.round(ctx, ctx)
		if !a.server.Snapshot().Running && (a.view().Holder != a.options.Instance || a.config.IsFenced(a.options.Instance)) {
			return
		}
		a.pause(ctx, pause)
	}
}

// beatWhileStopping keeps the agent alive in the kubelet's eyes, however long PostgreSQL takes to stop.
func (a *Agent) beatWhileStopping(ctx context.Context) {
	ticker := time.NewTicker(serve.LiveBound / 6)
	defer ticker.Stop()
	for ctx.Err() == nil {
		a.health.Beat(true, "stopping")
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// startKeeper begins to watch the Lease, once its name is known.
func (a *Agent) startKeeper(background context.Context) error {
	timings := timingsOf(a.config.Lease)
	if keeper := a.leaseKeeper(); keeper != nil {
		keeper.SetTimings(timings, a.config.Availability.Failsafe)
		return nil
	}
	api, err := a.options.Lease(a.config.Lease.Name)
	if err != nil {
		return err
	}
	keeper := lease.NewKeeper(lease.Options{
		API: api, Self: a.options.Instance, Pod: a.options.PodUID, Now: lease.Boottime, Log: a.log, Changed: a.poke,
		Renewed: a.renewed, Ask: a.askToGoOn,
	}, timings)
	keeper.SetTimings(timings, a.config.Availability.Failsafe)
	a.mu.Lock()
	a.keeper = keeper
	a.mu.Unlock()
	a.keeperSince = time.Now()
	a.run(func() { keeper.Run(background) })
	a.run(func() { lease.Guard(background, keeper, a.server, a.log) })
	return nil
}

func (a *Agent) leaseKeeper() *lease.Keeper {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keeper
}

// view is the Lease as it was last seen; not known before there is a keeper.
func (a *Agent) view() lease.View {
	if keeper := a.leaseKeeper(); keeper != nil {
		return keeper.View()
	}
	return lease.View{}
}

func timingsOf(config agentapi.Lease) lease.Timings {
	timings := lease.Timings{
		Duration: time.Duration(config.DurationSeconds) * time.Second,
		Renew:    time.Duration(config.RenewSeconds) * time.Second,
		Deadline: time.Duration(config.DeadlineSeconds) * time.Second,
	}
	if timings.Duration <= 0 || timings.Renew <= 0 || timings.Renew*2 > timings.Duration || timings.Deadline >= timings.Duration {
		return lease.Timings{Duration: lease.DefaultDuration, Deadline: lease.DefaultDeadline, Renew: lease.DefaultRenew}
	}
	return timings
}

func (a *Agent) numbers() serve.Numbers {
	return serve.Numbers{LeaseRemaining: a.view().Remaining.Seconds(), Restarts: a.crashes.Load()}
}

// force is what is known of a takeover by force.
type force struct {
	// known says that the volume was read; done, that this instance has held the Lease since it was forced; kept is what the volume
	// says of that.
	known, done, kept bool
}
