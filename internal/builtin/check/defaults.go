package check

// SetIfNil sets a pointer that is nil.
func SetIfNil[T any](to **T, value T) {
	if *to == nil {
		set := value // only a value that is used goes to the heap
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
