package postgres

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
)

// ControlFile is the control file's path in a data directory.
const ControlFile = "global/pg_control"

// State of a data directory, as its control file has it.
type State uint32

// The states of enum DBState in PostgreSQL's catalog/pg_control.h.
const (
	StateStartup State = iota
	StateShutdown
	StateShutdownInRecovery
	StateShuttingDown
	StateInCrashRecovery
	StateInArchiveRecovery
	StateInProduction
)

// Control is what we need of a control file. It is parsed here and not with pg_controldata, because an image may have no
// pg_controldata, or one of another major. The layout did not change between the majors we run except behind what we read.
type Control struct {
	// SystemIdentifier is the number that initdb gave the system, in decimal.
	SystemIdentifier string
	State            State
	// Position is the furthest position that the control file proves: of the last checkpoint or of the minimum recovery point.
	Position Position
	// CheckpointTimeline is the timeline of the last checkpoint, and Redo where recovery would begin: a server needs the WAL from
	// there on.
	CheckpointTimeline int64
	Redo               LSN
	// NextXID is the transaction that would have come next at the last checkpoint, with its epoch.
	NextXID uint64
	// Minimums are the settings that the primary had; a standby must have at least as much of each to start
	// (https://www.postgresql.org/docs/current/hot-standby.html#HOT-STANDBY-ADMIN).
	Minimums map[string]int
	// Checksums says whether data pages have checksums.
	Checksums bool
}

// InRecovery says whether the directory was last run as a standby.
func (c Control) InRecovery() bool {
	return c.State == StateShutdownInRecovery || c.State == StateInArchiveRecovery
}

// StoppedCleanly says whether the directory was last run as a primary, and stopped after a checkpoint that was the last it wrote.
// Position is then the beginning of that checkpoint's record.
func (c Control) StoppedCleanly() bool { return c.State == StateShutdown }

// Offsets in struct ControlFileData, the same from 13 to 18 on 64-bit machines.
const (
	offsetSystem        = 0
	offsetVersion       = 8
	offsetState         = 16
	offsetCheckpoint    = 32
	offsetRedo          = 40
	offsetTimeline      = 48
	offsetNextXID       = 64
	offsetMinRecovery   = 136
	offsetMinTimeline   = 144
	offsetMaxConns      = 180
	offsetMaxWorkers    = 184
	offsetMaxSenders    = 188
	offsetMaxPrepared   = 192
	offsetMaxLocks      = 196
	offsetChecksums     = 252
	controlVersion13    = 1300
	controlVersion17    = 1700
	controlVersion18    = 1800
	offsetCRC13         = 288
	offsetCRC18         = 292
	controlSizeRequired = offsetCRC18 + 4
)

// ErrControl is that a control file is damaged or of a version that is not known.
var ErrControl = errors.New("control file not readable")

// ParseControl reads the content of a control file.
func ParseControl(content []byte) (Control, error) {
	if len(content) < controlSizeRequired {
		return Control{}, fmt.Errorf("%w: only %d bytes", ErrControl, len(content))
	}
	order := binary.NativeEndian
	u32 := func(offset int) uint32 { return order.Uint32(content[offset:]) }
	u64 := func(offset int) uint64 { return order.Uint64(content[offset:]) }

	var crcOffset int
	switch version := u32(offsetVersion); version {
	case controlVersion13, controlVersion17:
		crcOffset = offsetCRC13
	case controlVersion18:
		crcOffset = offsetCRC18
	default:
		return Control{}, fmt.Errorf("%w: version %d", ErrControl, version)
	}
	if crc32.Checksum(content[:crcOffset], crc32.MakeTable(crc32.Castagnoli)) != u32(crcOffset) {
		return Control{}, fmt.Errorf("%w: wrong checksum", ErrControl)
	}

	// The timeline of a standby that has just been promoted is only in the minimum recovery point until the next checkpoint.
	timeline := int64(u32(offsetTimeline))
	position := Position{Timeline: timeline, LSN: LSN(u64(offsetCheckpoint))}
	recovery := Position{Timeline: int64(u32(offsetMinTimeline)), LSN: LSN(u64(offsetMinRecovery))}
	if recovery.Compare(position) > 0 {
		position = recovery
	}
	return Control{
		SystemIdentifier:   strconv.FormatUint(u64(offsetSystem), 10),
		State:              State(u32(offsetState)),
		Position:           position,
		CheckpointTimeline: timeline,
		Redo:               LSN(u64(offsetRedo)),
		NextXID:            u64(offsetNextXID),
		Minimums: map[string]int{
			"max_connections":           int(u32(offsetMaxConns)),
			"max_worker_processes":      int(u32(offsetMaxWorkers)),
			"max_wal_senders":           int(u32(offsetMaxSenders)),
			"max_prepared_transactions": int(u32(offsetMaxPrepared)),
			"max_locks_per_transaction": int(u32(offsetMaxLocks)),
		},
		Checksums: u32(offsetChecksums) != 0,
	}, nil
}
