package store

// deque is a queue that can be indexed: values come at the back and leave at the
// front. Its zero value is empty.
type deque[T any] struct {
	pieces []*[dequePiece]T
	first  int // the index of the front in the first piece
	length int
}

const dequePiece = 32

func (d *deque[T]) len() int { return d.length }

func (d *deque[T]) at(i int) *T {
	i += d.first
	return &d.pieces[i/dequePiece][i%dequePiece]
}

func (d *deque[T]) push(v T) {
	end := d.first + d.length
	if end == len(d.pieces)*dequePiece {
		d.pieces = append(d.pieces, new([dequePiece]T))
	}
	d.pieces[end/dequePiece][end%dequePiece] = v
	d.length++
}

// pop removes the front. The deque must not be empty.
func (d *deque[T]) pop() T {
	var zero T
	v := d.pieces[0][d.first]
	d.pieces[0][d.first] = zero
	d.first++
	d.length--
	if d.first == dequePiece || d.length == 0 {
		d.pieces[0] = nil
		d.pieces = d.pieces[1:]
		d.first = 0
	}
	return v
}
