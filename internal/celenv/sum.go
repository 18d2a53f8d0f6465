package celenv

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// sumOfLists is the sum of two lists. That of the library adds up the sizes in a tree of sums for each item
// that is read.
type sumOfLists struct {
	traits.Lister // that of the library
	left, right   traits.Lister
	split, size   types.Int // the sizes of left and of both
}

// Size implements traits.Sizer.
func (s *sumOfLists) Size() ref.Val { return s.size }

// Get implements traits.Indexer.
func (s *sumOfLists) Get(index ref.Val) ref.Val {
	at, err := types.IndexOrError(index)
	if err != nil {
		return types.ValOrErr(index, "%v", err)
	}
	i, in := types.Int(at), traits.Lister(s)
	for {
		sum, ok := in.(*sumOfLists)
		switch {
		case !ok:
			return in.Get(i)
		case i < sum.split:
			in = sum.left
		default:
			in, i = sum.right, i-sum.split
		}
	}
}

// Equal implements ref.Val.
func (s *sumOfLists) Equal(other ref.Val) ref.Val {
	list, ok := other.(traits.Lister)
	if !ok || list.Size() != s.size {
		return types.False
	}
	result := ref.Val(types.True)
	for a, b := s.Iterator(), list.Iterator(); a.HasNext() == types.True && b.HasNext() == types.True; {
		switch same := types.Equal(a.Next(), b.Next()); {
		case same == types.False:
			return types.False
		case types.IsUnknownOrError(same) && result == types.True:
			result = same
		}
	}
	return result
}

// Iterator implements traits.Iterable.
func (s *sumOfLists) Iterator() traits.Iterator {
	i := &sumIterator{}
	i.enter(s)
	return i
}

// sumIterator iterates over the lists of a sum, one after the other.
type sumIterator struct {
	traits.Iterator // of the list that is read
	next            []traits.Lister
}

// enter begins with a list. No list in a sum is empty.
func (i *sumIterator) enter(list traits.Lister) {
	for sum, ok := list.(*sumOfLists); ok; sum, ok = list.(*sumOfLists) {
		i.next = append(i.next, sum.right)
		list = sum.left
	}
	i.Iterator = list.Iterator()
}

// HasNext implements traits.Iterator.
func (i *sumIterator) HasNext() ref.Val {
	if i.Iterator.HasNext() == types.True {
		return types.True
	}
	return types.Bool(len(i.next) > 0)
}

// Next implements traits.Iterator.
func (i *sumIterator) Next() ref.Val {
	if i.Iterator.HasNext() != types.True && len(i.next) > 0 {
		list := i.next[len(i.next)-1]
		i.next = i.next[:len(i.next)-1]
		i.enter(list)
	}
	return i.Iterator.Next()
}
