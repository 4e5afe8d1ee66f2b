package postgres

import (
	"strconv"
	"strings"
)

// blockSize is PostgreSQL's page, the unit of shared_buffers.
const blockSize = 8 << 10

// lockBytes is what PostgreSQL reserves, roughly, for one lock of one connection: an entry in each of the tables of locks, of their
// holders and of predicate locks.
const lockBytes = 350

// memoryUnits are those of https://www.postgresql.org/docs/current/config-setting.html.
var memoryUnits = map[string]int64{"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}

// Bytes is the amount of memory that a parameter's value means, whose unit is that many bytes if it names none; false if it is no
// amount of memory.
func Bytes(value string, unit int64) (int64, bool) {
	value = strings.TrimSpace(value)
	digits := strings.TrimRight(value, "kKBMGT ")
	if suffix := strings.TrimSpace(value[len(digits):]); suffix != "" {
		var known bool
		if unit, known = memoryUnits[suffix]; !known {
			return 0, false
		}
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || n < 0 || n*float64(unit) > 1<<62 {
		return 0, false
	}
	return int64(n * float64(unit)), true
}

// SharedMemory is, roughly and rather too little, what a server with these settings of the user reserves when it starts, given its
// memory limit (0: none): shared buffers and the tables of locks. What is no number is taken for the default: PostgreSQL will say so.
func SharedMemory(user map[string]string, limit int64) int64 {
	settings := Settings{MemoryLimit: limit, User: user}
	number := func(name string, otherwise int64) int64 {
		if n, err := strconv.ParseInt(strings.TrimSpace(user[name]), 10, 32); err == nil && n > 0 {
			return n
		}
		return otherwise
	}
	buffers, ok := Bytes(user["shared_buffers"], blockSize)
	if !ok {
		buffers = settings.sharedBuffers()
	}
	backends := number("max_connections", 100) + number("max_prepared_transactions", 0)
	return buffers + backends*number("max_locks_per_transaction", 64)*lockBytes
}

// MemoryParameters are those that SharedMemory looks at.
var MemoryParameters = []string{"shared_buffers", "max_connections", "max_prepared_transactions", "max_locks_per_transaction"}
