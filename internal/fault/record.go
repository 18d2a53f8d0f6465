package fault

import "strings"

// MaxRecorded is how many requests a set records.
const MaxRecorded = 10_000

// Record records the requests from now on, in the order of the calls of Pick. It forgets those that were
// recorded before.
func (s *Set) Record() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recording, s.recorded, s.missed = true, nil, 0
	s.active.Store(true)
}

// Recorded returns the first MaxRecorded requests since Record, and how many more there were.
func (s *Set) Recorded() (all []Request, missed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recorded[:len(s.recorded):len(s.recorded)], s.missed
}

// record adds a request. The caller holds mu.
func (s *Set) record(q *Request) {
	if !s.recording {
		return
	}
	if len(s.recorded) == MaxRecorded {
		s.missed++
		return
	}
	kept := *q
	if len(kept.UserAgent) > maxText {
		kept.UserAgent = strings.ToValidUTF8(strings.Clone(kept.UserAgent[:maxText]), "") // not the whole header
	}
	s.recorded = append(s.recorded, kept)
}
