package console

import (
	"sync"
	"time"
)

// remembered is how many answers are kept at most: beyond that the old ones go, and if that is not enough, all.
const remembered = 20000

// memory keeps answers for a while.
type memory[K comparable, V any] struct {
	now func() time.Time

	mu      sync.Mutex
	answers map[K]answer[V]
}

type answer[V any] struct {
	value   V
	expires time.Time
}

func newMemory[K comparable, V any](now func() time.Time) *memory[K, V] {
	return &memory[K, V]{now: now, answers: map[K]answer[V]{}}
}

func (m *memory[K, V]) get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.answers[key]
	if !ok || !m.now().Before(found.expires) {
		var none V
		return none, false
	}
	return found.value, true
}

func (m *memory[K, V]) put(key K, value V, lasts time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if len(m.answers) >= remembered {
		for k, a := range m.answers {
			if !now.Before(a.expires) {
				delete(m.answers, k)
			}
		}
	}
	if len(m.answers) >= remembered {
		clear(m.answers)
	}
	m.answers[key] = answer[V]{value: value, expires: now.Add(lasts)}
}
