package fairness

import "time"

// maxHand bounds the size of a hand: one with more cards has more entropy than a flow has bits.
const maxHand = 64

// deal returns the hand of a flow: distinct queues of a deck, in no particular order. Equal
// flows get equal hands. Two flows share all of their queues with a small probability only.
func deal(flow uint64, deck, hand int, cards *[maxHand]int) []int {
	hand = max(1, min(hand, maxHand))
	dealt := cards[:0]
	for i := range hand {
		left := uint64(deck - i)
		// The card is the one of this rank among those that are left: the cards before
		// it that were dealt are skipped. dealt is sorted.
		card := int(flow % left)
		flow /= left
		at := 0
		for at < len(dealt) && dealt[at] <= card {
			card++
			at++
		}
		dealt = append(dealt, 0)
		copy(dealt[at+1:], dealt[at:])
		dealt[at] = card
	}
	return dealt
}

// list is a list of seats, the oldest first. A seat is in at most one list.
type list struct {
	first, last *Seat
	len         int
}

func (l *list) push(s *Seat) {
	s.prev, s.next = l.last, nil
	if l.last == nil {
		l.first = s
	} else {
		l.last.next = s
	}
	l.last = s
	l.len++
}

func (l *list) remove(s *Seat) {
	if s.prev == nil {
		l.first = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		l.last = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
	l.len--
}

// queueHeap has the queues with waiting requests. The first one is next. Of two with the same
// expected finish, it is the one that was served longer ago.
type queueHeap []*queue

func (h queueHeap) less(i, j int) bool {
	return h[i].before(h[j])
}

// before reports whether the next request of q goes ahead of that of another queue.
func (q *queue) before(other *queue) bool {
	if a, b := q.finish(), other.finish(); a != b {
		return a < b
	}
	return q.lastDispatch < other.lastDispatch
}

func (h queueHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

func (h *queueHeap) push(q *queue) {
	q.pos = len(*h)
	*h = append(*h, q)
	h.up(q.pos)
}

func (h *queueHeap) remove(q *queue) {
	i, last := q.pos, len(*h)-1
	if i != last {
		h.swap(i, last)
	}
	(*h)[last] = nil
	*h = (*h)[:last]
	q.pos = -1
	if i != last {
		h.fix((*h)[i])
	}
}

// fix restores the order after a change of q.
func (h queueHeap) fix(q *queue) {
	h.up(q.pos)
	h.down(q.pos)
}

func (h queueHeap) up(i int) {
	for i > 0 && h.less(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h queueHeap) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

// linger is a number of seats that stay in use after their request.
type linger struct {
	until time.Duration
	seats int
	queue *queue
}

// lingerHeap has the seats that linger. The first ones are free first.
type lingerHeap []linger

func (h *lingerHeap) push(e linger) {
	*h = append(*h, e)
	a := *h
	for i := len(a) - 1; i > 0 && a[i].until < a[(i-1)/2].until; i = (i - 1) / 2 {
		a[i], a[(i-1)/2] = a[(i-1)/2], a[i]
	}
}

func (h *lingerHeap) pop() linger {
	a := *h
	first, last := a[0], len(a)-1
	a[0], a[last] = a[last], linger{}
	a = a[:last]
	*h = a
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(a); child++ {
			if a[child].until < a[least].until {
				least = child
			}
		}
		if least == i {
			return first
		}
		a[i], a[least] = a[least], a[i]
		i = least
	}
}
