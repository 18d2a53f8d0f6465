package crd

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"k8s.io/client-go/third_party/forked/golang/template"
	"k8s.io/client-go/util/jsonpath"

	"github.com/tidemark-dev/tidemark/internal/builtin/apiextensions"
)

// JSONPaths are parsed by client-go, and evaluated here with a limit. In client-go, `..x..x`
// returns a value once for each way to it, and a union such as `[0,0]` doubles the results of the
// rest, so a path of 100 bytes can take minutes. client-go also writes to a path with {range} while
// it evaluates it.

// The limits for a row depend on the size of its object. Their constant parts are small, because a table can have a hundred
// thousand rows.
const (
	// minSteps is the number of values that the paths of one row may visit in any object.
	minSteps = 1_000
	// stepsPerColumn is the number of visits for each column, in addition, and stepsPerValue for each value in the object.
	stepsPerColumn = 8
	stepsPerValue  = 8
	// minPrinted is the number of bytes that the columns of a row may print for any object. They may
	// print each byte of the object printedPerByte times, in addition.
	minPrinted     = 1 << 10
	printedPerByte = 4
)

// parsePath parses the path of a column.
func parsePath(text string) ([]jsonpath.Node, error) {
	if len(text) > apiextensions.MaxPathBytes { // the parser recurses for each character
		return nil, fmt.Errorf("the path is longer than %d bytes", apiextensions.MaxPathBytes)
	}
	p, err := jsonpath.Parse("", "{"+text+"}")
	if err != nil {
		return nil, err
	}
	return p.Root.Nodes, nil
}

// allowance is the work that is left for the columns of one row. The object is measured only when the
// constant parts of the limits are used up, which is rare.
type allowance struct {
	object         map[string]any
	steps, printed int
	measured       bool
}

func newAllowance(object map[string]any, columns int) *allowance {
	return &allowance{object: object, steps: minSteps + stepsPerColumn*columns, printed: minPrinted}
}

var errTooMuchWork = errors.New("the columns take too much work")

// visit subtracts values that a path visits.
func (a *allowance) visit(n int) error {
	if a.steps -= n; a.steps < 0 {
		if a.measure(); a.steps < 0 {
			a.steps = math.MinInt32 // for all columns that follow
			return errTooMuchWork
		}
	}
	return nil
}

// print subtracts bytes that a column prints.
func (a *allowance) print(n int) error {
	if a.printed -= n; a.printed < 0 {
		if a.measure(); a.printed < 0 {
			a.printed = math.MinInt32
			return errTooMuchWork
		}
	}
	return nil
}

func (a *allowance) measure() {
	if a.measured {
		return
	}
	a.measured = true
	values, bytes := size(a.object)
	a.steps += stepsPerValue * values
	a.printed += printedPerByte * bytes
}

// size returns the number of values in a value, and about the length of its JSON.
func size(v any) (values, bytes int) {
	const scalar = 8
	values, bytes = 1, scalar
	add := func(name string, v any) {
		n, b := size(v)
		values += n
		bytes += len(name) + b
	}
	switch v := v.(type) {
	case string:
		bytes += len(v)
	case []any:
		for _, item := range v {
			add("", item)
		}
	case map[string]any:
		for name, member := range v {
			add(name, member)
		}
	}
	return values, bytes
}

// evaluation is one evaluation of a path. Its state is that of jsonpath.JSONPath.
type evaluation struct {
	*allowance
	beginRange, inRange, endRange int
	lastEnd                       *jsonpath.Node
}

// find returns the values of each part of a path. It is JSONPath.FindResults with AllowMissingKeys.
func (e *evaluation) find(data any, nodes []jsonpath.Node) ([][]any, error) {
	var all [][]any
	for i := 0; i < len(nodes); i++ {
		found, err := e.walk([]any{data}, nodes[i])
		if err != nil {
			return nil, err
		}
		if e.endRange > 0 && e.endRange <= e.inRange {
			e.endRange--
			e.lastEnd = &nodes[i]
			break
		}
		if e.beginRange == 0 {
			all = append(all, found)
			continue
		}
		e.beginRange--
		e.inRange++
		each := found
		if len(each) == 0 { // evaluate the body of the range to find its end
			each = []any{nil}
		}
		for _, value := range each {
			next, err := e.find(value, nodes[i+1:])
			if err != nil {
				return nil, err
			}
			if len(found) > 0 {
				all = append(all, next...)
			}
		}
		e.inRange--
		for k := i + 1; k < len(nodes); k++ {
			if &nodes[k] == e.lastEnd {
				i = k
				break
			}
		}
	}
	return all, nil
}

func (e *evaluation) walk(values []any, node jsonpath.Node) ([]any, error) {
	if err := e.visit(1 + len(values)); err != nil {
		return nil, err
	}
	switch node := node.(type) {
	case *jsonpath.ListNode:
		return e.list(values, node)
	case *jsonpath.TextNode:
		return []any{node.Text}, nil
	case *jsonpath.FieldNode:
		var found []any
		for _, v := range values {
			if members, ok := v.(map[string]any); ok {
				if member, ok := members[node.Value]; ok {
					found = append(found, member)
				}
			}
		}
		return found, nil
	case *jsonpath.ArrayNode:
		return e.array(values, node)
	case *jsonpath.FilterNode:
		return e.filter(values, node)
	case *jsonpath.IntNode:
		return slices.Repeat([]any{node.Value}, len(values)), nil
	case *jsonpath.BoolNode:
		return slices.Repeat([]any{node.Value}, len(values)), nil
	case *jsonpath.FloatNode:
		return slices.Repeat([]any{node.Value}, len(values)), nil
	case *jsonpath.WildcardNode:
		var found []any
		for _, v := range values {
			n := 0
			switch v := v.(type) {
			case map[string]any:
				n = len(v)
			case []any:
				n = len(v)
			case string:
				n = len(v)
			}
			if err := e.visit(n); err != nil {
				return nil, err
			}
			found = append(found, parts(v)...)
		}
		return found, nil
	case *jsonpath.RecursiveNode:
		var found []any
		err := e.recursive(values, &found)
		return found, err
	case *jsonpath.UnionNode:
		var found []any
		for _, one := range node.Nodes {
			more, err := e.list(values, one)
			if err != nil {
				return values, err
			}
			found = append(found, more...)
		}
		return found, nil
	case *jsonpath.IdentifierNode:
		switch {
		case node.Name == "range":
			e.beginRange++
			return values, nil
		case node.Name == "end" && e.inRange > 0:
			e.endRange++
			return nil, nil
		case node.Name == "end":
			return nil, errors.New("not in range, nothing to end")
		}
		return values, fmt.Errorf("unrecognized identifier %v", node.Name)
	}
	return values, fmt.Errorf("unexpected Node %v", node)
}

func (e *evaluation) list(values []any, node *jsonpath.ListNode) ([]any, error) {
	var err error
	for _, n := range node.Nodes {
		if values, err = e.walk(values, n); err != nil {
			break
		}
	}
	return values, err
}

// parts returns the members of an object in the order of their names, the items of a list, or the bytes
// of a string.
func parts(v any) []any {
	switch v := v.(type) {
	case map[string]any:
		all := make([]any, 0, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			all = append(all, v[name])
		}
		return all
	case []any:
		return v
	case string:
		all := make([]any, len(v))
		for i := range len(v) {
			all[i] = v[i]
		}
		return all
	}
	return nil
}

// recursive appends all values in values that have parts.
func (e *evaluation) recursive(values []any, to *[]any) error {
	if err := e.visit(len(values)); err != nil {
		return err
	}
	for _, v := range values {
		if s, ok := v.(string); ok {
			if s != "" {
				*to = append(*to, v)
			}
			continue
		}
		inner := parts(v)
		if len(inner) == 0 {
			continue
		}
		*to = append(*to, v)
		if err := e.recursive(inner, to); err != nil {
			return err
		}
	}
	return nil
}

// array returns the selected items of lists.
func (e *evaluation) array(values []any, node *jsonpath.ArrayNode) ([]any, error) {
	var found []any
	for _, v := range values {
		if v == nil {
			continue
		}
		items, ok := v.([]any)
		if !ok {
			return values, fmt.Errorf("%T is not array or slice", v)
		}
		from, to, step := node.Params[0].Value, node.Params[1].Value, 1
		if !node.Params[0].Known {
			from = 0
		}
		if from < 0 {
			from += len(items)
		}
		if !node.Params[1].Known {
			to = len(items)
		}
		if to < 0 || to == 0 && node.Params[1].Derived {
			to += len(items)
		}
		if from == to {
			return found, nil
		}
		if from < 0 || from >= len(items) || to < 0 || to > len(items) || from > to {
			return values, fmt.Errorf("array index out of bounds: %d to %d, length %d", from, to, len(items))
		}
		if node.Params[2].Known {
			if step = node.Params[2].Value; step <= 0 {
				return values, errors.New("step must be > 0")
			}
		}
		if err := e.visit((to - from) / step); err != nil {
			return nil, err
		}
		for i := from; i < to && i >= 0; i += step {
			found = append(found, items[i])
		}
	}
	return found, nil
}

// filter returns the items of lists for which a comparison holds.
func (e *evaluation) filter(values []any, node *jsonpath.FilterNode) ([]any, error) {
	var found []any
	for _, v := range values {
		items, ok := v.([]any)
		if !ok {
			return values, fmt.Errorf("%T is not array or slice and cannot be filtered", v)
		}
		for _, item := range items {
			holds, err := e.holds(item, node)
			if err != nil {
				return values, err
			}
			if holds {
				found = append(found, item)
			}
		}
	}
	return found, nil
}

var comparisons = map[string]func(a, b any) (bool, error){
	"<":  template.Less,
	">":  template.Greater,
	"<=": template.LessEqual,
	">=": template.GreaterEqual,
	"!=": template.NotEqual,
	"==": func(a, b any) (bool, error) { return template.Equal(a, b) },
}

func (e *evaluation) holds(item any, node *jsonpath.FilterNode) (bool, error) {
	left, err := e.list([]any{item}, node.Left)
	switch {
	case errors.Is(err, errTooMuchWork):
		return false, err
	case node.Operator == "exists":
		return len(left) > 0, nil
	case err != nil || len(left) == 0:
		return false, err
	case len(left) > 1:
		return false, errors.New("can only compare one element at a time")
	}
	right, err := e.list([]any{item}, node.Right)
	switch {
	case err != nil || len(right) == 0:
		return false, err
	case len(right) > 1:
		return false, errors.New("can only compare one element at a time")
	}
	compare := comparisons[node.Operator]
	if compare == nil {
		return false, fmt.Errorf("unrecognized filter operator %s", node.Operator)
	}
	if a, ok := left[0].(string); ok { // a comparison of strings reads them
		if err := e.visit(len(a) / 64); err != nil {
			return false, err
		}
	}
	return compare(left[0], right[0])
}
