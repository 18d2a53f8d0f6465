package check

// SetIfNil sets a pointer that is nil.
func SetIfNil[T any](to **T, value T) {
	if *to == nil {
		set := value // a copy, so that only a used value escapes to the heap
		*to = &set
	}
}

// SetIfZero sets a variable that has its zero value.
func SetIfZero[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}
