package apply

import "reflect"

// SameShape reports whether two schemas are the same to the straight way.
func SameShape(a, b *Schema) bool { return reflect.DeepEqual(a.shape(), b.shape()) }
