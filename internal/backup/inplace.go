package backup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// InPlace is a wish for a recovery of a cluster's own data.
type InPlace struct {
	// Name tells attempts apart: each is made once.
	Name string
	// WithoutBackup says that no backup is to be made before.
	WithoutBackup bool
	Target        Target
}

var (
	attemptName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)
	pointName   = regexp.MustCompile(`^[^\n\r\x00']{1,63}$`)
)

// ParseInPlace understands the text of such a wish: JSON with a name, and the fields of spec.bootstrap.recovery that say up to where.
func ParseInPlace(text string) (InPlace, error) {
	var wish struct {
		Name              string `json:"name"`
		SkipSafetyBackup  bool   `json:"skipSafetyBackup"`
		Backup            string `json:"backup"`
		TargetTime        string `json:"targetTime"`
		TargetLSN         string `json:"targetLSN"`
		TargetName        string `json:"targetName"`
		TargetImmediate   bool   `json:"targetImmediate"`
		TargetTimeline    int64  `json:"targetTimeline"`
		ExclusiveOfTarget bool   `json:"exclusive"`
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wish); err != nil {
		return InPlace{}, fmt.Errorf(`must be JSON such as {"name": "first", "targetTime": "2026-03-01T12:00:00Z"}: %w`, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return InPlace{}, errors.New("must be one JSON object, and nothing after it")
	}
	targets := 0
	for _, given := range []bool{wish.TargetTime != "", wish.TargetLSN != "", wish.TargetName != "", wish.TargetImmediate} {
		if given {
			targets++
		}
	}
	switch {
	case !attemptName.MatchString(wish.Name):
		return InPlace{}, errors.New("name must be given, so that it is done once: at most 32 lower case letters, digits and hyphens, another one for each attempt")
	case targets != 1:
		return InPlace{}, errors.New("must have one of targetTime, targetLSN, targetName and targetImmediate: all the rest is there already")
	case wish.TargetName != "" && !pointName.MatchString(wish.TargetName):
		return InPlace{}, errors.New("targetName must be the name of a point that was made with pg_create_restore_point")
	case (wish.TargetName != "" || wish.TargetImmediate) && wish.Backup == "":
		return InPlace{}, errors.New("backup must be given with targetName and targetImmediate: it says where to begin")
	case wish.ExclusiveOfTarget && wish.TargetTime == "" && wish.TargetLSN == "":
		return InPlace{}, errors.New("exclusive goes with targetTime or targetLSN only")
	case wish.TargetTimeline < 0:
		return InPlace{}, errors.New("targetTimeline must be positive")
	}
	target := Target{
		Backup: wish.Backup, LSN: wish.TargetLSN, Name: wish.TargetName, Immediate: wish.TargetImmediate,
		Timeline: wish.TargetTimeline, Exclusive: wish.ExclusiveOfTarget,
	}
	if wish.TargetLSN != "" {
		if _, err := postgres.ParseLSN(wish.TargetLSN); err != nil {
			return InPlace{}, fmt.Errorf("targetLSN must be a position such as 0/5000148: %w", err)
		}
	}
	if wish.TargetTime != "" {
		at, err := ParseTime(wish.TargetTime)
		if err != nil {
			return InPlace{}, fmt.Errorf("targetTime: %w", err)
		}
		target.Time = &at
	}
	return InPlace{Name: wish.Name, WithoutBackup: wish.SkipSafetyBackup, Target: target}, nil
}

// String says up to where it goes.
func (t Target) String() string {
	text := "the end of the WAL"
	switch {
	case t.Time != nil:
		text = t.Time.UTC().Format(time.RFC3339Nano)
	case t.LSN != "":
		text = "position " + t.LSN
	case t.Name != "":
		text = "point " + t.Name
	case t.Immediate:
		text = "the end of backup " + t.Backup
	}
	if t.Exclusive {
		text = "just before " + text
	}
	if t.Timeline > 0 {
		text += fmt.Sprintf(" on timeline %d", t.Timeline)
	}
	return text
}
