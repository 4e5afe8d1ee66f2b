package validate

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// switchoverWindow: the window in which a new version may take over comes at some time.
func switchoverWindow(q question) Verdict {
	return Verdict{Errors: windowErrors(q.after)}
}

func windowErrors(c *v1.PostgresCluster) field.ErrorList {
	w, path := c.Spec.Upgrade.SwitchoverWindow, field.NewPath("spec", "upgrade", "switchoverWindow")
	if w == nil {
		return nil
	}
	return append(scheduleErrors(path.Child("schedule"), w.Schedule), timeZoneErrors(path.Child("timeZone"), w.TimeZone)...)
}

func scheduleErrors(path *field.Path, text string) field.ErrorList {
	if _, err := backup.ParseSchedule(text); err != nil {
		return field.ErrorList{field.Invalid(path, text, err.Error())}
	}
	return nil
}

func timeZoneErrors(path *field.Path, name string) field.ErrorList {
	if _, err := backup.ParseTimeZone(name); err != nil {
		return field.ErrorList{field.Invalid(path, name, err.Error())}
	}
	return nil
}
