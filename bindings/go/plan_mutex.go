package radixkv

import "sync"

// planMutex is a sync.RWMutex whose readers may read again: who waits to write keeps no reader out.
// So whoever looks at a plan may ask it for more, and compute it. Plans are set when nobody looks
// at them any more, so writers need not fear to wait for ever.
type planMutex struct {
	count   sync.Mutex // guards readers
	readers int
	alone   sync.Mutex // a writer's, or that of all readers together
}

func (m *planMutex) RLock() {
	m.count.Lock()
	defer m.count.Unlock()
	if m.readers++; m.readers == 1 {
		m.alone.Lock()
	}
}

func (m *planMutex) RUnlock() {
	m.count.Lock()
	defer m.count.Unlock()
	if m.readers--; m.readers == 0 {
		m.alone.Unlock()
	}
}

func (m *planMutex) Lock() { m.alone.Lock() }

func (m *planMutex) Unlock() { m.alone.Unlock() }
