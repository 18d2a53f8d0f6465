package flowschema

import (
	"time"
)

// The estimates are those of kube-apiserver.
const (
	// bytesPerSeat is how many bytes of objects a list returns for each of its seats.
	bytesPerSeat = 100_000
	// mostStreamed is how many bytes of a list count that is streamed from memory.
	mostStreamed = 1_000_000
	// mostListSeats and mostWriteSeats bound the seats of a request.
	mostListSeats, mostWriteSeats = 100, 10
	// watchesPerSeat is how many watches take a seat for eventTime, after a write.
	watchesPerSeat = 10
	eventTime      = 5 * time.Millisecond
)

// kube-apiserver has no large requests.
const (
	// largeBytes is the size in bytes from which on a list is large.
	largeBytes = 32 << 10
	// largeObject is the size in bytes of an object from which on a write that changes it is large. Even a small patch
	// decodes, compares and encodes the whole object.
	largeObject = 128 << 10
)

// Work is the estimated work of a request.
type Work struct {
	// Seats is how many seats it takes while it executes; at least 1.
	Seats int
	// FinalSeats is how many seats it takes for Extra after it has a response; zero: none.
	FinalSeats int
	Extra      time.Duration
	// Large: only a few such requests execute at once; see fairness.Config.
	Large bool
}

// Small is the work of a request that returns little and changes nothing.
var Small = Work{Seats: 1}

// width returns a number of seats within the bound of the level, and within most.
func (l *Level) width(seats, most int) int {
	if l.MaxWidth > 0 {
		most = min(most, l.MaxWidth)
	}
	return max(1, min(seats, most))
}

// List is the work of a list, or of the initial events of a watch, that returns so many bytes of
// objects. streamed: it is read from the current state; a list of an older state has to be made
// first.
func (l *Level) List(bytes int64, streamed bool) Work {
	large := bytes >= largeBytes
	if streamed {
		bytes = min(bytes, mostStreamed)
	}
	bytes = min(bytes, mostListSeats*bytesPerSeat)
	return Work{Seats: l.width(int((bytes+bytesPerSeat-1)/bytesPerSeat), mostListSeats), Large: large}
}

// Write is the work of a write that changes an object of so many bytes, and whose event goes to so many watches. Few
// watches do not count.
func (l *Level) Write(bytes, watches int) Work {
	large := bytes >= largeObject
	if watches < watchesPerSeat {
		return Work{Seats: 1, Large: large}
	}
	seats := (watches + watchesPerSeat - 1) / watchesPerSeat
	final := l.width(seats, mostWriteSeats)
	return Work{Seats: 1, FinalSeats: final, Extra: time.Duration(float64(eventTime) * float64(seats) / float64(final)), Large: large}
}
