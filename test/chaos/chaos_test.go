//go:build e2e

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// beds keeps the bed in use; a round that fails may leave it beyond use, and then the next gets a new one.
type beds struct {
	present *bed
	made    []*bed
}

// leave has the beds that are not used any more go, so that they do not take this machine's time; the end of the test waits for it.
func (s *beds) leave(t *testing.T) {
	t.Helper()
	if os.Getenv("CHAOS_KEEP") != "" {
		return
	}
	for _, b := range s.made {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}
		if err := kube.Delete(t.Context(), namespace); client.IgnoreNotFound(err) != nil {
			t.Logf("removing %s: %v", b.namespace, err)
		}
	}
	s.made = nil
}

// get is the present bed of that kind, if it is of use, or a new one.
func (s *beds) get(t *testing.T, k kind) *bed {
	t.Helper()
	if s.present == nil || s.present.kind != k {
		s.leave(t)
		s.present = newBed(t, k)
		s.made = append(s.made, s.present)
	}
	return s.present
}

// try does a round, as a test of its own. After one that failed, the evidence is kept, everything is mended, and the bed goes if it
// does not heal.
func (s *beds) try(t *testing.T, k kind, seed, number int, f fault) outcome {
	t.Helper()
	b := s.get(t, k)
	var o outcome
	t.Run(fmt.Sprintf("%s/%d/%s", k, number, strings.ReplaceAll(f.name, " ", "-")), func(t *testing.T) {
		o = b.round(t.Context(), seed, number, f)
		o.print()
		if err := o.record(); err != nil {
			t.Error(err)
		}
		if len(o.Problems) == 0 {
			return
		}
		evidence := b.dump(t.Context(), fmt.Sprintf("%d-%d-%s", seed, number, f.name))
		t.Errorf("%s, seed %d, round %d: %s\nevidence: %s", f.name, seed, number, strings.Join(o.Problems, "\n"), evidence)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := mendAll(ctx); err != nil {
			t.Error(err)
		}
		if err := until(ctx, time.Minute, b.healthy); err != nil {
			s.present = nil
		}
	})
	return o
}

// kinds are those of the environment: KINDS="17-sync 16-async".
func kinds(t *testing.T, otherwise string) []kind {
	t.Helper()
	text := os.Getenv("KINDS")
	if text == "" {
		text = otherwise
	}
	var found []kind
	for _, word := range strings.Fields(text) {
		version, mode, _ := strings.Cut(word, "-")
		if images["POSTGRES_"+version+"_IMAGE"] == "" || mode != "sync" && mode != "async" {
			t.Fatalf("KINDS: %q is not a major that has an image, and sync or async, as in 17-sync", word)
		}
		found = append(found, kind{version: version, mode: mode})
	}
	return found
}

// chosen are the faults whose names match FAULTS.
func chosen(t *testing.T) []fault {
	t.Helper()
	var found []fault
	for _, f := range faults {
		if f.stalls == nil {
			f.stalls = never
		}
		if wanted(t, f.name) {
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		t.Fatalf("FAULTS=%q: no fault has such a name", os.Getenv("FAULTS"))
	}
	return found
}

// wanted says whether FAULTS chooses what has this name.
func wanted(t *testing.T, name string) bool {
	t.Helper()
	pattern, err := regexp.Compile("^(" + os.Getenv("FAULTS") + ")$")
	if err != nil {
		t.Fatalf("FAULTS: %v", err)
	}
	return os.Getenv("FAULTS") == "" || pattern.MatchString(name)
}

// TestEach does each fault once, or those that FAULTS chooses.
func TestEach(t *testing.T) {
	s := &beds{}
	seed := setting(t, "SEED", 1)
	number := 0
	for _, k := range kinds(t, "17-sync") {
		for _, f := range chosen(t) {
			number++
			s.try(t, k, seed, number, f)
		}
	}
}

// TestRandom does ROUNDS random faults, chosen by SEED.
func TestRandom(t *testing.T) {
	s := &beds{}
	seed, rounds := setting(t, "SEED", int(time.Now().Unix()%1e6)), setting(t, "ROUNDS", 20)
	all, choices := kinds(t, "17-sync 17-async"), chosen(t)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	fmt.Printf("SEED=%d ROUNDS=%d\n", seed, rounds)
	good := 0
	for number := 1; number <= rounds; number++ {
		// one kind after the other, since each needs a cluster of its own
		k := all[(number-1)*len(all)/rounds]
		if o := s.try(t, k, seed, number, choices[random.IntN(len(choices))]); len(o.Problems) == 0 {
			good++
		}
	}
	fmt.Printf("SEED=%d: %d of %d rounds ok\n", seed, good, rounds)
}

// TestShort is the fixed part that CI runs: what happens most, in synchronous mode.
func TestShort(t *testing.T) {
	s := &beds{}
	for i, name := range []string{"postmaster-killed", "pod-deleted", "pod-force-deleted", "agent-stopped-15s", "node-killed", "cut-off-from-api-and-peers", "switchover"} {
		for _, f := range chosen(t) {
			if f.name == name {
				s.try(t, kind{version: "17", mode: "sync"}, 1, i+1, f)
			}
		}
	}
}
