package view

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	minute = time.Minute
	hour   = time.Hour
	day    = 24 * time.Hour
)

// Ago is how long before now a time was, as a person says it.
func Ago(t, now time.Time) string {
	d := now.Sub(t)
	if d < 0 {
		return "in " + span(-d)
	}
	if d < 10*time.Second {
		return "just now"
	}
	return span(d) + " ago"
}

// span is a duration in one unit, or two where one would be too rough.
func span(d time.Duration) string {
	switch {
	case d < minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < hour:
		return fmt.Sprintf("%d min", d/minute)
	case d < 10*hour && d%hour >= minute:
		return fmt.Sprintf("%d h %d min", d/hour, d%hour/minute)
	case d < 2*day:
		return fmt.Sprintf("%d h", d/hour)
	}
	return fmt.Sprintf("%d days", d/day)
}

// Bytes is an amount as a person reads it.
func Bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, names := float64(n), []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	name := ""
	for _, name = range names {
		if value /= unit; value < unit {
			break
		}
	}
	if value < 10 {
		return fmt.Sprintf("%.1f %s", value, name)
	}
	return fmt.Sprintf("%.0f %s", value, name)
}

// timeOf is nil if there is none.
func timeOf(t *metav1.Time) *time.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	return &t.Time
}

// shortened keeps the end of a name, which is what tells instances apart.
func shortened(name string, most int) string {
	runes := []rune(name)
	if len(runes) <= most {
		return name
	}
	return "…" + string(runes[len(runes)-most+1:])
}

// cut keeps the beginning of a text.
func cut(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return strings.TrimSpace(string(runes[:most-1])) + "…"
}
