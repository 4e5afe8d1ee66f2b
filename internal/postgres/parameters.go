package postgres

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Parameters are settings of postgresql.conf by name, in lower case.
type Parameters map[string]string

// Settings is everything that postgresql.conf is made of.
type Settings struct {
	Major int
	// Name is the instance's name; it shows in the process list.
	Name string
	// User has what the user asked for: stronger than our defaults, weaker than what we own.
	User map[string]string
	// MemoryLimit of the container and VolumeSize in bytes; 0 if not known.
	MemoryLimit int64
	VolumeSize  int64

	ListenAddresses string
	Port            int
	SocketDirectory string
	LogDirectory    string
	HBAFile         string
	IdentFile       string
	CertFile        string
	KeyFile         string
	CAFile          string

	// PrimaryConninfo and PrimarySlot of a standby. They are harmless while the instance is primary.
	PrimaryConninfo string
	PrimarySlot     string
	// ReadOnly makes transactions read-only unless their client says otherwise; it is stronger than the user's setting.
	ReadOnly bool
	// Still does so while writes are moved away, and autovacuum begins nothing.
	Still bool
	// Promoting is for a standby that is about to be promoted: no query keeps it from replaying; it is stronger than the user's settings.
	Promoting bool
	// Closed keeps clients out, by pg_hba.conf; Upgrade lets in the role of major upgrades. They are no parameters.
	Closed  bool
	Upgrade bool
	// ArchiveCommand is archive_command; empty: WAL is not archived, and archive_mode is off.
	ArchiveCommand string
	// SyncStandbys is synchronous_standby_names. It has no effect on a standby.
	SyncStandbys string
	// Minimums are numbers that a standby must not go below; nil for a primary.
	Minimums map[string]int
}

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30
)

// ours are parameters that belong to us beside those that Owned sets: they move files, or would make an instance stop being
// one of its cluster.
var ours = []string{
	"archive_cleanup_command", "config_file", "data_directory", "external_pid_file", "include", "include_dir",
	"include_if_exists", "log_file_mode", "primary_conninfo", "primary_slot_name", "promote_trigger_file",
	"recovery_end_command", "recovery_min_apply_delay", "recovery_target", "recovery_target_action", "recovery_target_inclusive",
	"recovery_target_lsn", "recovery_target_name", "recovery_target_time", "recovery_target_xid", "restore_command",
	"ssl_ciphers_file", "ssl_crl_dir", "ssl_crl_file", "ssl_passphrase_command", "stats_temp_directory", "syslog_facility",
	"syslog_ident", "event_source", "bonjour", "bonjour_name", "allow_in_place_tablespaces", "ignore_checksum_failure",
	"zero_damaged_pages", "ignore_system_indexes", "ssl_passphrase_command_supports_reload",
}

// floors are the least values that replication to MaxReplicas instances, backups and upgrades need.
var floors = map[string]int{
	"max_wal_senders": 20, "max_replication_slots": 20, "max_connections": 20, "max_worker_processes": 8,
	// A major upgrade needs one of each for every database, and some more while tables are copied.
	"max_logical_replication_workers": 16, "max_active_replication_origins": 32,
}

// Merge is the whole of postgresql.conf's parameters, and the names that the user must not set and that were left out.
func (s Settings) Merge() (merged Parameters, refused []string) {
	owned := s.owned()
	merged = s.defaults()
	for name, value := range s.User {
		name = strings.ToLower(strings.TrimSpace(name))
		if _, isOwned := owned[name]; isOwned || slices.Contains(ours, name) {
			refused = append(refused, name)
			continue
		}
		merged[name] = value
	}
	maps.Copy(merged, owned)
	if s.ArchiveCommand != "" {
		merged["archive_mode"], merged["archive_command"] = "on", s.ArchiveCommand
		if _, set := merged["archive_timeout"]; !set {
			merged["archive_timeout"] = "5min"
		}
	}
	if s.ReadOnly {
		merged["default_transaction_read_only"] = "on"
	}
	if s.Still { // also for sessions that pg_hba.conf has let in before
		merged["default_transaction_read_only"], merged["autovacuum"] = "on", "off"
	}
	if s.Promoting {
		merged["max_standby_streaming_delay"], merged["max_standby_archive_delay"] = "0", "0"
	}
	for name, least := range floors {
		if s.Major >= since[name] {
			raise(merged, name, least)
		}
	}
	for name, least := range s.Minimums {
		raise(merged, name, least)
	}
	slices.Sort(refused)
	return merged, slices.Compact(refused)
}

// raise sets a number that is below the least, or missing. What is no number is left for PostgreSQL to refuse.
func raise(parameters Parameters, name string, least int) {
	value, set := parameters[name]
	if !set {
		parameters[name] = strconv.Itoa(least)
		return
	}
	if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && n < least {
		parameters[name] = strconv.Itoa(least)
	}
}

// owned are the parameters that nobody else may set.
func (s Settings) owned() Parameters {
	return Parameters{
		"listen_addresses":         s.ListenAddresses,
		"port":                     strconv.Itoa(s.Port),
		"unix_socket_directories":  s.SocketDirectory,
		"hba_file":                 s.HBAFile,
		"ident_file":               s.IdentFile,
		"cluster_name":             s.Name,
		"wal_level":                "logical", // a major upgrade needs it, and changing it would restart the primary
		"hot_standby":              "on",
		"wal_log_hints":            "on", // pg_rewind
		"recovery_target_timeline": "latest",
		"primary_conninfo":         s.PrimaryConninfo,
		"primary_slot_name":        s.PrimarySlot,
		// The lease says the same, and more: see package election.
		"synchronous_standby_names": s.SyncStandbys,
		"ssl":                       "on",
		"ssl_cert_file":             s.CertFile,
		"ssl_key_file":              s.KeyFile,
		"ssl_ca_file":               s.CAFile,
		// A server whose process crashed ends as a whole, and the agent starts it again: that is counted, bounded and reported.
		"restart_after_crash": "off",
		"password_encryption": "scram-sha-256",
		"allow_alter_system":  "off",
		// The agent reads the log from pipes, and understands it only in English.
		"log_destination":          "jsonlog",
		"logging_collector":        "on",
		"log_directory":            s.LogDirectory,
		"log_filename":             LogName,
		"log_rotation_age":         "0",
		"log_rotation_size":        "0",
		"log_truncate_on_rotation": "off",
		"lc_messages":              "C",
	}.forMajor(s.Major)
}

// LogName is log_filename. With log_destination=jsonlog the log itself is in LogName + ".json"; what the collector cannot
// write there goes to LogName.
const LogName = "postgres"

// since has the major in which a parameter appeared, if that is one of those we run.
var since = map[string]int{"allow_alter_system": 17, "max_active_replication_origins": 18}

func (p Parameters) forMajor(major int) Parameters {
	for name, first := range since {
		if major < first {
			delete(p, name)
		}
	}
	return p
}

// defaults are what the user may change.
func (s Settings) defaults() Parameters {
	return Parameters{
		"shared_buffers":            megabytes(s.sharedBuffers()),
		"max_connections":           "100",
		"max_wal_senders":           "20",
		"max_replication_slots":     "32",
		"max_worker_processes":      "32",
		"max_prepared_transactions": "0",
		// PostgreSQL's own default, written down: a standby has it in its file as a minimum, and taking it out at its promotion would
		// leave a restart pending.
		"max_locks_per_transaction":    "64",
		"max_wal_size":                 megabytes(part(s.VolumeSize, 10, 128*mebibyte, gibibyte)),
		"min_wal_size":                 "80MB",
		"wal_keep_size":                megabytes(part(s.VolumeSize, 16, 64*mebibyte, 512*mebibyte)),
		"max_slot_wal_keep_size":       megabytes(part(s.VolumeSize, 4, 256*mebibyte, 64*gibibyte)),
		"wal_sender_timeout":           "10s",
		"wal_receiver_timeout":         "10s",
		"wal_receiver_status_interval": "1s",
		"wal_retrieve_retry_interval":  "1s",
		"tcp_keepalives_idle":          "30",
		"tcp_keepalives_interval":      "10",
		"tcp_keepalives_count":         "3",
		// Keepalives do not fire while sent data is unacknowledged. A walsender to a machine that vanished would hang in its write,
		// keep a checkpoint that wants its slot waiting, and with it all removal of WAL, and any shutdown.
		"tcp_user_timeout":           "30s",
		"log_lock_waits":             "on",
		"recovery_init_sync_method":  "syncfs", // a volume of our own: faster than one fsync for each file
		"default_text_search_config": "pg_catalog.english",
		"dynamic_shared_memory_type": "posix",
	}
}

// sharedBuffers is a quarter of the memory, PostgreSQL's own advice
// (https://www.postgresql.org/docs/current/runtime-config-resource.html#GUC-SHARED-BUFFERS).
func (s Settings) sharedBuffers() int64 {
	if s.MemoryLimit <= 0 {
		return 128 * mebibyte
	}
	return part(s.MemoryLimit, 4, 16*mebibyte, 1024*gibibyte)
}

// part is whole/n within bounds; the most if the whole is not known. Sizes that follow the volume keep a dead standby's WAL,
// or a burst of writes, from filling it.
func part(whole, n, least, most int64) int64 {
	if whole <= 0 {
		return most
	}
	return min(max(whole/n, least), most)
}

func megabytes(n int64) string { return strconv.FormatInt(n/mebibyte, 10) + "MB" }

// String is the content of postgresql.conf: the same for the same parameters.
func (p Parameters) String() string {
	var out strings.Builder
	out.WriteString("# Written by pgsteward; changes made here are lost. Use spec.postgresql.parameters.\n")
	for _, name := range slices.Sorted(maps.Keys(p)) {
		out.WriteString(name + " = " + quoteSetting(p[name]) + "\n")
	}
	return out.String()
}

// quoteSetting quotes a value by the rules of postgresql.conf, which knows C's escapes.
func quoteSetting(value string) string {
	escape := strings.NewReplacer(`'`, `''`, `\`, `\\`, "\n", `\n`, "\r", `\r`, "\x00", "")
	return "'" + escape.Replace(value) + "'"
}

// IsParameterName says whether the name can stand in postgresql.conf.
func IsParameterName(name string) bool {
	for i, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_'
		if !letter && (i == 0 || r != '.' && r != '$' && (r < '0' || r > '9')) {
			return false
		}
	}
	return name != ""
}
