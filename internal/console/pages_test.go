package console

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/console/view"
)

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(-d))) }

// full is a cluster of which every page has something to say, with a text wherever one can stand.
func full(text string) *v1.PostgresCluster {
	return &v1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod-db", UID: "u1", Generation: 2, CreationTimestamp: *before(time.Hour)},
		Spec: v1.PostgresClusterSpec{
			Replicas: new(int32(3)), Version: "17", Backup: &v1.BackupSpec{Schedule: new("0 2 * * *"), TimeZone: text, Retention: "30d"},
			PostgreSQL: v1.PostgreSQLSpec{Parameters: map[string]v1.ParameterValue{"work_mem": v1.ParameterValue(text)}},
			Upgrade:    v1.UpgradeSpec{Switchover: v1.SwitchoverManual, MaxWritePause: "5s", RollbackWindow: "1h"},
		},
		Status: v1.PostgresClusterStatus{
			Phase: v1.PhaseUpgrading, Version: "16.14", CurrentPrimary: "prod-db-1", Replicas: 3, ReadyReplicas: 2, Timeline: 4,
			Instances: []v1.InstanceStatus{
				{Name: "prod-db-1", Role: v1.RolePrimary, Ready: true, State: "Running", Version: "16.14", Timeline: 4, LSN: "0/5000148", Node: text},
				{Name: "prod-db-2", Role: v1.RoleStandby, Ready: true, State: "Running", Timeline: 4, LagBytes: new(int64(4096)), PendingRestart: []string{"work_mem"}},
				{Name: "prod-db-3", State: "Seeding", Message: text},
			},
			Switchover: &v1.SwitchoverStatus{Target: text, From: "prod-db-2", Phase: v1.SwitchoverRefused, Message: text, RequestedAt: *before(time.Minute)},
			Upgrade: &v1.UpgradeStatus{
				From: "16", To: "17", Phase: v1.UpgradeObserve, Message: text, Seed: "prod-db-3", Origin: "prod-db-2", Method: "Physical", MethodReason: text,
				StartedAt: before(time.Hour), SwitchedOverAt: before(15 * time.Minute), RollbackUntil: before(-45 * time.Minute), LastWritePause: "640ms",
				LastFailure: text, LagBytes: new(int64(0)), TablesTotal: 12, TablesDone: 3,
				Findings: []v1.UpgradeFinding{{Severity: "Warning", Check: text, Message: text}, {Severity: "Blocker", Check: "LargeObjects", Database: text, Objects: []string{text}, Message: text}},
			},
			LastBackup: before(9 * time.Hour), FirstRecoverable: before(50 * time.Hour), LastArchived: before(time.Minute),
			Backup: &v1.BackupStatus{Count: 2, NextScheduled: before(-14 * time.Hour), Verification: &v1.VerificationStatus{
				Phase: v1.VerificationFailed, Message: text, Name: text, FinishedAt: before(time.Hour), LastSucceeded: before(99 * time.Hour),
			}},
			Conditions: []metav1.Condition{
				{Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: text, Message: text, LastTransitionTime: *before(time.Minute)},
				{Type: v1.ConditionUpgradePreflight, Status: metav1.ConditionTrue, Reason: v1.ReasonPreflightPassed, Message: text},
				{Type: v1.ConditionBackupHealthy, Status: metav1.ConditionFalse, Reason: v1.ReasonVerificationFailed, Message: text},
			},
		},
	}
}

// everyPage renders all pages with a text wherever one can stand.
func everyPage(t *testing.T, text string) map[string]string {
	t.Helper()
	p, err := newPages()
	require.NoError(t, err)
	c := full(text)
	base := clusterBase{
		page: page{Title: text, User: text, Form: "f", LogOut: true, Live: "/live", Now: now}, Namespace: "demo", Name: text, Tab: "cluster",
		Row: view.RowOf(c), State: view.StateOf(c), Actions: view.Actions(c, now), Done: text,
	}
	backup := v1.PostgresBackup{
		ObjectMeta: metav1.ObjectMeta{Name: text},
		Status:     v1.PostgresBackupStatus{Phase: v1.BackupFailed, Type: v1.BackupFull, Message: text, FinishedAt: before(40 * time.Hour)},
	}
	event := corev1.Event{Reason: text, Message: text, Type: corev1.EventTypeWarning, Count: 3, LastTimestamp: *before(time.Minute)}
	found := map[string]string{}
	for name, data := range map[string]any{
		"login":   loginData{page: page{Title: text}, Next: text, Problem: text},
		"fleet":   fleetData{page: base.page, Fleet: view.FleetOf([]*v1.PostgresCluster{c}, view.Filter{}), query: map[string][]string{"q": {text}}},
		"cluster": clusterData{clusterBase: base, Cluster: view.ClusterOf(c, []corev1.Event{event})},
		"upgrade": upgradeData{clusterBase: base, Upgrade: view.UpgradeOf(c, now), Version: text},
		"backups": backupsData{clusterBase: base, Backups: view.BackupsOf(c, []v1.PostgresBackup{backup}, now), Version: text},
		"action":  actionData{clusterBase: base, Action: view.Actions(c, now)[0], Problem: text},
		"problem": problemData{page: base.page, Message: text},
	} {
		answer := httptest.NewRecorder()
		p.show(answer, 200, name, data)
		require.Equal(t, 200, answer.Code, name+": "+answer.Body.String())
		found[name] = answer.Body.String()
	}
	return found
}

// TestPages_escape: whatever stands in names and messages is text on every page, never markup, and no style or script is in line.
func TestPages_escape(t *testing.T) {
	t.Parallel()
	const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>' javascript:x`
	for name, text := range everyPage(t, hostile) {
		assert.NotContains(t, text, "<script>", name)
		assert.NotContains(t, text, "<img src=x", name)
		assert.NotRegexp(t, regexp.MustCompile(`(href|action|src)="javascript:`), text, name)
		assert.NotRegexp(t, regexp.MustCompile(`<[a-z][^>]*\sstyle=`), text, name)
		assert.NotRegexp(t, regexp.MustCompile(`<[^>]*"\s*on[a-z]+=`), text, name)
		assert.Contains(t, text, "&lt;script&gt;", name)
	}
}

// TestPages_shape: what a screen reader needs is there, each id is there once, and ids and labels belong together.
func TestPages_shape(t *testing.T) {
	t.Parallel()
	for name, text := range everyPage(t, "x") {
		assert.Equal(t, 1, strings.Count(text, "<h1"), name)
		assert.Equal(t, 1, strings.Count(text, "<main"), name)
		assert.Contains(t, text, `<html lang="en">`, name)
		ids := map[string]bool{}
		for _, match := range regexp.MustCompile(`\sid="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			assert.False(t, ids[match[1]], "%s: id %s is there twice", name, match[1])
			ids[match[1]] = true
		}
		for _, match := range regexp.MustCompile(`(?:aria-labelledby|aria-describedby|\sfor)="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			assert.True(t, ids[match[1]], "%s: there is no %s", name, match[1])
		}
	}
}

func TestLocalPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/": "/", "/clusters/a/b?x=1": "/clusters/a/b?x=1", "": "/", "https://evil.example/": "/", "//evil.example/": "/",
		`/\evil.example`: "/", "javascript:alert(1)": "/", "/login?next=/": "/", "clusters": "/", "/a\r\nSet-Cookie: x": "/", "/%zz": "/",
	} {
		assert.Equal(t, want, localPath(path), path)
	}
}

func TestSealer(t *testing.T) {
	t.Parallel()
	clock := now
	_, err := newSealer(make([]byte, 31), func() time.Time { return clock })
	require.ErrorContains(t, err, "needs 32")
	s, err := newSealer([]byte(strings.Repeat("k", 32)), func() time.Time { return clock })
	require.NoError(t, err)
	longest := session{ID: random(), Token: strings.Repeat("t", tokenBytes), Expires: now.Add(time.Hour)}
	sealed, err := s.seal(longest)
	require.NoError(t, err)
	assert.Less(t, len(sessionCookie)+len(sealed), 4096, "browsers take no longer cookie")
	assert.NotContains(t, sealed, "ttt")
	opened, err := s.open(sealed)
	require.NoError(t, err)
	assert.Equal(t, longest.Token, opened.Token)
	for _, other := range []string{"", "x", sealed[:len(sealed)-2], "A" + sealed[1:], sealed + "AA"} {
		if other == sealed {
			continue
		}
		_, err := s.open(other)
		require.ErrorIs(t, err, errNoSession)
	}
	other, err := newSealer([]byte(strings.Repeat("o", 32)), func() time.Time { return clock })
	require.NoError(t, err)
	_, err = other.open(sealed)
	require.ErrorIs(t, err, errNoSession, "another key")
	assert.True(t, s.isFormValue(s.formValue("a"), "a"))
	assert.False(t, s.isFormValue(s.formValue("a"), "b"))
	assert.False(t, other.isFormValue(s.formValue("a"), "a"))
	clock = now.Add(time.Hour)
	_, err = s.open(sealed)
	require.ErrorIs(t, err, errNoSession, "it is over")
}

func TestLimits(t *testing.T) {
	t.Parallel()
	clock := now
	l := newLimits(func() time.Time { return clock })
	for range loginsAtOnce {
		require.True(t, l.allow("a"))
	}
	assert.False(t, l.allow("a"))
	assert.True(t, l.allow("b"), "another address")
	clock = clock.Add(loginEvery)
	assert.True(t, l.allow("a"))
	assert.False(t, l.allow("a"))
}

func TestMemory(t *testing.T) {
	t.Parallel()
	clock := now
	m := newMemory[int, string](func() time.Time { return clock })
	m.put(1, "one", time.Minute)
	got, ok := m.get(1)
	assert.True(t, ok)
	assert.Equal(t, "one", got)
	clock = clock.Add(time.Minute)
	_, ok = m.get(1)
	assert.False(t, ok, "too old")
	for n := range remembered + 10 {
		m.put(n, "", time.Minute)
	}
	assert.LessOrEqual(t, len(m.answers), remembered)
}
