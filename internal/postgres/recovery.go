package postgres

import (
	"maps"
	"strconv"
)

// Recovering are the parameters of a server that recovers a backup up to a target, and that nobody reaches but over its socket. WAL of
// the new timeline is kept for the archiver of the server that comes after it.
func Recovering(s Settings, target Parameters) Parameters {
	merged := Parameters{
		"listen_addresses":          "",
		"port":                      strconv.Itoa(s.Port),
		"unix_socket_directories":   s.SocketDirectory,
		"hot_standby":               "off", // so that it answers only when it is done
		"wal_level":                 "logical",
		"archive_mode":              "on",
		"archive_command":           "exit 130", // makes the archiver give up at once
		"logging_collector":         "off",
		"log_destination":           "stderr",
		"log_line_prefix":           "",
		"lc_messages":               "C",
		"restart_after_crash":       "off",
		"recovery_target_timeline":  "latest",
		"recovery_target_action":    "promote",
		"max_wal_size":              "1GB",
		"recovery_init_sync_method": "syncfs",
		"wal_log_hints":             "on",
		"max_worker_processes":      "8",
		"shared_preload_libraries":  "",
	}
	for name, least := range s.Minimums {
		raise(merged, name, least)
	}
	maps.Copy(merged, target)
	return merged.forMajor(s.Major)
}
