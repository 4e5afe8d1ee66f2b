//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

const (
	// boundUpgrade is for one way of a major upgrade, with the data of the largest size.
	boundUpgrade = 10 * time.Minute
	// sizeUnit is how much data SIZES=1 is, in MiB.
	sizeUnit = 100
)

// way is what one way of major upgrades took, a value for each: in seconds.
type way struct {
	name                string
	paused, gaps, total []float64
}

// TestUpgrades measures major upgrades under writes: RUNS times there and back again for each size of data (SIZES="1 2 10", in units of
// 100 MiB), and once for good. A pause that is longer than the goal is a line of the table; an upgrade that does not come to its end, or a
// row that is lost, is a failure.
func TestUpgrades(t *testing.T) {
	from, to, _ := strings.Cut(otherwise(os.Getenv("VERSIONS"), "15 17"), " ")
	runs := setting(t, "RUNS", 3)
	var table strings.Builder
	fmt.Fprintf(&table, "%6s %-18s %4s | %-31s | %-31s | %s\n", "MiB", "upgrade", "runs", "writes paused, by the primary", "gap, by a connected client", "until it has the writes")
	fmt.Fprintf(&table, "%30s | %7s %7s %7s %7s | %7s %7s %7s %7s | %7s %7s\n", "", "min", "median", "p95", "max", "min", "median", "p95", "max", "median", "max")
	for _, word := range strings.Fields(otherwise(os.Getenv("SIZES"), "1 2 10")) {
		size, err := strconv.Atoi(word)
		if err != nil || size < 1 {
			t.Fatalf("SIZES: %q is not a number from 1 on", word)
		}
		t.Run(fmt.Sprintf("%s-to-%s-%d", from, to, size), func(t *testing.T) {
			b := newBed(t, kind{version: from, mode: "async", alone: true})
			if err := b.fill(t.Context(), size*sizeUnit); err != nil {
				t.Fatal(err)
			}
			there, back, forGood := &way{name: from + " to " + to}, &way{name: to + " back to " + from}, &way{name: "for good, till Done"}
			for number := range runs {
				if !b.ride(t, number+1, moved{there, to, v1.UpgradeObserve}, moved{back, from, v1.UpgradeRolledBack}) {
					return
				}
			}
			if err := b.change(t.Context(), func(c *v1.PostgresCluster) { c.Spec.Upgrade.RollbackWindow = "0" }); err != nil {
				t.Fatal(err)
			}
			b.ride(t, runs+1, moved{forGood, to, v1.UpgradeDone})
			for _, w := range []*way{there, back, forGood} {
				fmt.Fprintf(&table, "%6d %-18s %4d | %7.2f %7.2f %7.2f %7.2f | %7.2f %7.2f %7.2f %7.2f | %7.0f %7.0f\n", size*sizeUnit, w.name, len(w.total),
					percentile(w.paused, 0), percentile(w.paused, 50), percentile(w.paused, 95), percentile(w.paused, 100),
					percentile(w.gaps, 0), percentile(w.gaps, 50), percentile(w.gaps, 95), percentile(w.gaps, 100), percentile(w.total, 50), percentile(w.total, 100))
			}
		})
	}
	fmt.Printf("\nMajor upgrades, three instances, in seconds; goals: paused 1 at the median, 2 at p95; load %s\n%s", load(), table.String())
}

func otherwise(text, instead string) string {
	if text == "" {
		return instead
	}
	return text
}

// fill makes so many MiB of data, with a key.
func (b *bed) fill(ctx context.Context, size int) error {
	ctx, cancel := context.WithTimeout(ctx, boundUpgrade)
	defer cancel()
	s, err := b.look(ctx)
	if err != nil {
		return err
	}
	for part := range size / 25 { // about 25 MiB each, with the index
		if part == 0 {
			_, err = b.sqlWithin(ctx, s.primary, "CREATE TABLE filling (id bigint PRIMARY KEY, value text)")
		}
		if err == nil {
			_, err = b.sqlWithin(ctx, s.primary, fmt.Sprintf(`INSERT INTO filling SELECT g, repeat(md5(g::text), 4)
				FROM generate_series(%d, %d) g`, part*130_000, (part+1)*130_000-1))
		}
		if err != nil {
			return fmt.Errorf("making data: %w", err)
		}
	}
	return until(ctx, boundHealthy, b.healthy)
}

// moved is a change of the version: what it took is kept in way.
type moved struct {
	way     *way
	version string
	phase   v1.UpgradePhase
}

// ride goes one way after the other, while the client writes, and says whether all went well.
func (b *bed) ride(t *testing.T, number int, ways ...moved) bool {
	t.Helper()
	o := outcome{Time: time.Now(), Round: number, Kind: b.String(), Fault: "major upgrade"}
	err := until(t.Context(), boundHealthy, b.healthy)
	if err == nil {
		err = b.ask(t.Context(), http.MethodPost, fmt.Sprintf("/begin?round=%d&moves=%d", number, len(ways)), &struct{}{})
	}
	var began []time.Time
	for _, m := range ways {
		if err == nil {
			pass(t.Context(), 2*time.Second)
			began = append(began, time.Now())
			err = b.moveTo(t.Context(), m)
		}
	}
	if err == nil {
		err = until(t.Context(), boundHealthy, b.healthy)
	}
	o.Recovered, o.Load = time.Since(o.Time).Seconds(), load()
	if err != nil {
		o.fail("%v", err)
	}
	if err := b.ask(t.Context(), http.MethodPost, "/end", &o.report); err != nil {
		o.fail("the client does not report: %v", err)
	}
	if !o.Checked || o.Lost > 0 || len(o.Violations) > 0 {
		o.fail("%d rows are lost: %v; %v %s", o.Lost, o.Losses, o.Violations, o.Problem)
	}
	for i, m := range ways[:len(began)] {
		longest := 0.0
		for _, g := range o.Gaps {
			if g.At.After(began[i]) && (i+1 == len(began) || g.At.Before(began[i+1])) {
				longest = max(longest, g.MS/1000)
			}
		}
		m.way.gaps = append(m.way.gaps, longest)
	}
	o.print()
	if err := o.record(); err != nil {
		t.Error(err)
	}
	if len(o.Problems) == 0 {
		return true
	}
	t.Errorf("round %d: %s\nevidence: %s", number, strings.Join(o.Problems, "\n"), b.dump(t.Context(), fmt.Sprintf("upgrade-%d", number)))
	return false
}

// moveTo changes the version, and waits until the upgrade is where it shall be.
func (b *bed) moveTo(ctx context.Context, m moved) error {
	if err := b.change(ctx, func(c *v1.PostgresCluster) {
		c.Spec.Version, c.Spec.Image = m.version, images["POSTGRES_"+m.version+"_IMAGE"]
	}); err != nil {
		return err
	}
	began := time.Now()
	c := &v1.PostgresCluster{}
	err := until(ctx, boundUpgrade, func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: clusterName}, c); err != nil {
			return err
		}
		switch s := c.Status.Upgrade; {
		case s == nil || c.Status.ObservedGeneration != c.Generation:
			return errors.New("the upgrade has not begun")
		case s.Phase != m.phase:
			return fmt.Errorf("the upgrade to %s is in phase %s, not %s: %s (last failure: %q)", m.version, s.Phase, m.phase, s.Message, s.LastFailure)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s := c.Status.Upgrade
	if s.LastFailure != "" {
		fmt.Printf("             attempt %d: %s\n", s.Attempt, s.LastFailure)
	}
	paused, err := time.ParseDuration(s.LastWritePause)
	if err != nil {
		return fmt.Errorf("status.upgrade.lastWritePause: %w", err)
	}
	m.way.paused, m.way.total = append(m.way.paused, paused.Seconds()), append(m.way.total, time.Since(began).Seconds())
	fmt.Printf("             %s after %.0f s, %s; writes paused %s\n", s.Phase, time.Since(began).Seconds(), s.Method, paused)
	return nil
}

// change patches the PostgresCluster.
func (b *bed) change(ctx context.Context, change func(c *v1.PostgresCluster)) error {
	c := &v1.PostgresCluster{}
	if err := kube.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: clusterName}, c); err != nil {
		return err
	}
	before := c.DeepCopy()
	change(c)
	return kube.Patch(ctx, c, client.MergeFrom(before))
}
