package expression

import "github.com/google/cel-go/common/functions"

// limit returns a function that fails before it does something that costs too much.
func limit(f *functions.Overload) *functions.Overload { return f }
