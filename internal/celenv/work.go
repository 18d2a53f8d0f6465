package celenv

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/containers"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/tidemark-dev/tidemark/internal/regex"
)

// The work of cel-go's type checker is not proportional to the length of an expression:
//
//   - For each expression, it formats the type once for each part of the type. So the work grows with the cube of the
//     depth of [[[1]]].
//   - It copies all known type variables for each overload that it tries, and for each operand of && and ||. Each call of
//     a generic function, such as ==, adds a type variable.
//   - A variable of a macro may double a type: `[1].map(a, {a: a}).map(a, {a: a})`.
//
// So weigh computes an upper bound of the work from the parsed expression. The types are not known before the check, but
// literals, declared types and the parameters of overloads bound their sizes.

// MaxWork is the maximum work to type-check an expression. It takes about a third of a second. A chain of n
// comparisons such as `a == 1` has a work of about 1.5 n².
const MaxWork = 1_000_000

// MaxWorkOfAll is the maximum work to type-check all expressions of an object.
const MaxWorkOfAll = 5 * MaxWork

// ErrWorkOfAll is the error of an object whose expressions take more than MaxWorkOfAll.
var ErrWorkOfAll = errors.New("the expressions of the object take too long to check together")

// nodeWork is the work of an expression whose type has no parts.
const nodeWork = 3

// typed is the known part of the type of an expression.
type typed struct {
	exact *types.Type // nil: unknown
	kind  types.Kind  // of the type if all of the candidates have it; Unspecified: unknown
	size  float64     // maximum number of parts; list(map(int, string)) has 4
	// open: the type may have type variables that the check may still bind, as that of [] has.
	open bool
	// shared: such a variable may be in the types of other expressions too, because a variable of a macro has it.
	shared bool
}

// firm reports whether the type binds the type variable of a parameter. The type dyn does not.
func (t typed) firm() bool {
	return !t.open && t.kind != types.UnspecifiedKind && t.kind != types.DynKind && t.kind != types.AnyKind && t.kind != types.ErrorKind
}

func exactly(t *types.Type, size float64) typed { return typed{exact: t, kind: t.Kind(), size: size} }

var dynamic = exactly(types.DynType, 1)

// weigher adds up the work.
type weigher struct {
	env       *cel.Env
	functions map[string]*decls.FunctionDecl
	variables map[string]*types.Type
	deepest   float64
	most      float64 // the maximum of work
	scope     []scoped

	work     float64
	bound    float64 // type variables
	open     float64 // expressions with an open type
	largest  float64 // size of a type
	adds     float64 // literals that have a shared type variable
	doubles  float64 // those that may have two of them
	tooMuch  error
	at       int64 // the expression with that error
	patterns []ast.Expr
}

type scoped struct {
	name string
	typed
}

// weigh returns the work to check an expression. If it is more than MaxWork, or the constant patterns are too large
// together, it returns an error and the part of the expression that has it.
func weigh(env *cel.Env, parsed *cel.Ast, deepest int) (work int, at int64, err error) {
	w := newWeigher(env, deepest)
	w.all(parsed.NativeRep().Expr())
	if w.tooMuch != nil {
		return MaxWork, w.at, w.tooMuch
	}
	at, err = checkPatterns(w.patterns)
	return int(w.work), at, err
}

func newWeigher(env *cel.Env, deepest int) *weigher {
	w := &weigher{env: env, functions: env.Functions(), variables: map[string]*types.Type{}, deepest: float64(max(deepest, 1)), most: MaxWork, largest: 1}
	for _, v := range env.Variables() {
		w.variables[v.Name()] = v.Type()
	}
	return w
}

// all adds up the work for a whole expression.
func (w *weigher) all(root ast.Expr) {
	w.visit(root)
	// The type that is bound to an open type may be larger than the known part.
	size := w.largest * (1 + w.adds) * math.Pow(2, w.doubles)
	w.spend(root, w.open*substitution(size))
}

// substitution is the work to replace the type variables of a type with this many parts.
func substitution(size float64) float64 { return size * size * (1 + size/64) }

func (w *weigher) spend(e ast.Expr, work float64) {
	w.work += work
	if w.tooMuch == nil && w.work > w.most {
		w.at, w.tooMuch = e.ID(), fmt.Errorf("the expression takes too long to check: it has too many comparisons and calls of generic functions, or too deeply nested lists, maps or macros")
	}
}

// visit returns the known part of the type of e, and spends the work to find it.
func (w *weigher) visit(e ast.Expr) typed {
	if w.tooMuch != nil {
		return dynamic
	}
	t := w.typeOf(e)
	t.size = max(t.size, 1)
	w.largest = max(w.largest, t.size)
	if t.open {
		w.open++
	}
	w.spend(e, nodeWork+substitution(t.size))
	return t
}

func (w *weigher) typeOf(e ast.Expr) typed {
	switch e.Kind() {
	case ast.LiteralKind:
		if t, ok := e.AsLiteral().Type().(*types.Type); ok {
			return exactly(t, 1)
		}
	case ast.IdentKind:
		return w.ident(e.AsIdent())
	case ast.SelectKind:
		return w.selected(e)
	case ast.CallKind:
		return w.called(e)
	case ast.ListKind:
		return w.list(e)
	case ast.MapKind:
		return w.mapped(e)
	case ast.StructKind:
		for _, f := range e.AsStruct().Fields() {
			w.visit(f.AsStructField().Value())
			w.tries(e, 1)
		}
		return typed{size: 3} // a well-known type may be map(string, dyn)
	case ast.ComprehensionKind:
		return w.comprehension(e)
	}
	return dynamic
}

// tries spends the work to try n times whether types are assignable.
func (w *weigher) tries(e ast.Expr, n int) { w.spend(e, float64(n)*w.bound) }

func (w *weigher) ident(name string) typed {
	name = strings.TrimPrefix(name, ".")
	for _, s := range slices.Backward(w.scope) {
		if s.name == name {
			return s.typed
		}
	}
	if t := w.variables[name]; t != nil {
		return exactly(t, w.sizeOf(t))
	}
	return typed{size: w.deepest + 2} // perhaps optional; or a type
}

// sizeOf returns the size of a type. Larger ones than MaxWork are too large.
func (w *weigher) sizeOf(t *types.Type) float64 {
	size := 1.0
	for _, p := range t.Parameters() {
		if size += w.sizeOf(p); size > MaxWork {
			break
		}
	}
	return size
}

// selected returns the type of a field, or of the value of a map.
func (w *weigher) selected(e ast.Expr) typed {
	sel := e.AsSelect()
	t := w.field(w.visit(sel.Operand()), sel.FieldName())
	if sel.IsTestOnly() {
		return exactly(types.BoolType, 1)
	}
	return t
}

func (w *weigher) field(of typed, name string) typed {
	if of.exact != nil {
		switch of.kind {
		case types.DynKind:
			return dynamic
		case types.MapKind:
			return exactly(of.exact.Parameters()[1], of.size-2)
		case types.StructKind:
			if f, found := w.env.CELTypeProvider().FindStructFieldType(of.exact.TypeName(), name); found {
				return exactly(f.Type, w.sizeOf(f.Type))
			}
		}
	}
	return typed{size: max(of.size, w.deepest+1), open: of.open, shared: of.shared}
}

func (w *weigher) list(e ast.Expr) typed {
	all := e.AsList().Elements()
	t := w.joined(e, all)
	if len(all) == 0 {
		t.open = true
		w.bound++
	}
	if t.shared {
		w.adds++
	}
	made := typed{kind: types.ListKind, size: t.size + 1, open: t.open, shared: t.shared}
	if t.exact != nil {
		made.exact = types.NewListType(t.exact)
	}
	return made
}

func (w *weigher) mapped(e ast.Expr) typed {
	var keys, values []ast.Expr
	for _, entry := range e.AsMap().Entries() {
		keys, values = append(keys, entry.AsMapEntry().Key()), append(values, entry.AsMapEntry().Value())
	}
	k, v := w.joined(e, keys), w.joined(e, values)
	if len(keys) == 0 {
		k.open = true
		w.bound += 2
	}
	w.grows(k, v)
	made := typed{kind: types.MapKind, size: k.size + v.size + 1, open: k.open || v.open, shared: k.shared || v.shared}
	if k.exact != nil && v.exact != nil {
		made.exact = types.NewMapType(k.exact, v.exact)
	}
	return made
}

// grows counts types that may repeat the type variables of two others.
func (w *weigher) grows(a, b typed) {
	switch {
	case a.shared && b.shared:
		w.doubles++
	case a.shared || b.shared:
		w.adds++
	}
}

// joined returns the common type of the items of a literal.
func (w *weigher) joined(e ast.Expr, all []ast.Expr) typed {
	t := typed{size: 1}
	for i, item := range all {
		one := w.visit(item)
		if i == 0 {
			t = one
			continue
		}
		w.tries(e, 1)
		if t.exact != nil && (one.exact == nil || !t.exact.IsExactType(one.exact)) {
			t.exact = nil
		}
		t = typed{exact: t.exact, size: max(t.size, one.size), open: t.open || one.open, shared: t.shared || one.shared}
	}
	return t
}

func (w *weigher) comprehension(e ast.Expr) typed {
	c := e.AsComprehension()
	over, accu := w.visit(c.IterRange()), w.visit(c.AccuInit())
	accu.shared = accu.open
	outer := len(w.scope)
	w.scope = append(w.scope, scoped{c.AccuVar(), accu})
	first, second := items(over, c.HasIterVar2())
	w.scope = append(w.scope, scoped{c.IterVar(), first})
	if c.HasIterVar2() {
		w.scope = append(w.scope, scoped{c.IterVar2(), second})
	}
	w.visit(c.LoopCondition())
	step := w.visit(c.LoopStep())
	w.tries(e, 3)
	w.scope = w.scope[:outer+1]
	if accu.open { // the step binds it
		accu.size, accu.open, accu.shared = max(accu.size, step.size), !step.firm(), !step.firm()
		if accu.exact = nil; step.firm() {
			accu.exact = step.exact
		}
		w.scope[outer].typed = accu
	}
	result := w.visit(c.Result())
	w.scope = w.scope[:outer]
	return result
}

// items returns the types of the variables of a macro.
func items(over typed, two bool) (first, second typed) {
	if over.exact != nil {
		switch p := over.exact.Parameters(); over.kind {
		case types.DynKind:
			return dynamic, dynamic
		case types.ListKind:
			first = exactly(p[0], over.size-1)
			if two {
				return exactly(types.IntType, 1), first
			}
			return first, first
		case types.MapKind:
			return exactly(p[0], over.size-2), exactly(p[1], over.size-2)
		}
	}
	item := typed{size: over.size - 1, open: over.open, shared: over.open}
	return item, item
}

func (w *weigher) called(e ast.Expr) typed {
	call := e.AsCall()
	if at, _ := constantPattern(call); at != nil {
		w.patterns = append(w.patterns, at)
	}
	name, member := call.FunctionName(), call.IsMemberFunction()
	var args []typed
	if member {
		qualified, ok := containers.ToQualifiedName(call.Target())
		if ok = ok && w.functions[strings.TrimPrefix(qualified, ".")+"."+name] != nil; ok {
			name, member = strings.TrimPrefix(qualified, ".")+"."+name, false
		} else {
			args = append(args, w.visit(call.Target()))
		}
	}
	for _, arg := range call.Args() {
		args = append(args, w.visit(arg))
	}
	switch {
	case name == operators.LogicalAnd || name == operators.LogicalOr:
		w.tries(e, len(args))
		return exactly(types.BoolType, 1)
	case name == operators.OptSelect && len(args) == 2:
		field, _ := call.Args()[1].AsLiteral().(types.String)
		t := w.field(args[0], string(field))
		return typed{kind: types.OpaqueKind, size: t.size + 1, open: t.open, shared: t.shared}
	}
	f := w.functions[strings.TrimPrefix(name, ".")]
	if f == nil {
		return dynamic
	}
	t := w.resolved(e, f, member, args)
	if name == operators.Index || name == operators.OptIndex || name == operators.Add {
		// The type of a list or map binds the variables. That of dyn is dyn, because several overloads fit.
		open := func(arg typed) bool { return arg.open }
		t.open = t.open && slices.ContainsFunc(args, open)
		t.shared = t.shared && t.open
	}
	return t
}

// resolved returns the type of a call: that of the overloads which may fit.
func (w *weigher) resolved(e ast.Expr, f *decls.FunctionDecl, member bool, args []typed) typed {
	var results []typed
	for _, o := range f.OverloadDecls() {
		if o.IsMemberFunction() != member {
			continue
		}
		w.tries(e, 1)
		if !mayFit(o.ArgTypes(), args) {
			continue
		}
		w.bound += float64(len(o.TypeParams()))
		results = append(results, w.result(o, args))
	}
	if len(results) == 0 {
		return dynamic
	}
	t := results[0]
	for _, other := range results[1:] {
		if t.exact == nil || other.exact == nil || !t.exact.IsExactType(other.exact) {
			t.exact = nil
		}
		if t.kind != other.kind {
			t.kind = types.UnspecifiedKind
		}
		t.size, t.open, t.shared = max(t.size, other.size), t.open || other.open, t.shared || other.shared
	}
	return t
}

// mayFit reports whether arguments may have the types of parameters.
func mayFit(params []*types.Type, args []typed) bool {
	if len(params) != len(args) {
		return false
	}
	for i, p := range params {
		switch p.Kind() {
		case types.BoolKind, types.BytesKind, types.DoubleKind, types.IntKind, types.StringKind, types.UintKind, types.ListKind, types.MapKind, types.DurationKind, types.TimestampKind:
			switch args[i].kind {
			case types.BoolKind, types.BytesKind, types.DoubleKind, types.IntKind, types.StringKind, types.UintKind, types.ListKind, types.MapKind, types.DurationKind, types.TimestampKind:
				if args[i].kind != p.Kind() {
					return false
				}
			}
		}
	}
	return true
}

// result returns the type of the result of an overload.
func (w *weigher) result(o *decls.OverloadDecl, args []typed) typed {
	t := o.ResultType()
	if len(o.TypeParams()) == 0 {
		return exactly(t, w.sizeOf(t))
	}
	made := typed{size: w.sizeOf(t)}
	made.exact, made.kind = sameOfAll(o, args)
	same := slices.ContainsFunc(o.ArgTypes(), t.IsExactType) // the result repeats nothing
	largest, grown := 0.0, typed{}
	for _, name := range o.TypeParams() {
		n := occurrences(t, name)
		if n == 0 {
			continue
		}
		bound := typed{size: 1, open: true}
		for i, p := range o.ArgTypes() {
			if occurrences(p, name) == 0 {
				continue
			}
			bound.size = max(bound.size, args[i].size-w.sizeOf(p)+1)
			bound.shared = bound.shared || args[i].shared
			if args[i].firm() {
				bound.open = false
			}
			largest = max(largest, args[i].size)
		}
		bound.shared = bound.shared && bound.open
		made.size += float64(n) * (bound.size - 1)
		made.open, made.shared = made.open || bound.open, made.shared || bound.shared
		for range n {
			if grown.shared && bound.shared && !same {
				w.doubles++
			}
			grown.shared = grown.shared || bound.shared
		}
	}
	if made.shared && made.size > largest && !same {
		w.adds++
	}
	if made.open {
		made.exact = nil
	}
	return made
}

// sameOfAll returns the type that all arguments have whose parameter has the type of the result, and its kind, if they
// are known. An open type becomes that of the others.
func sameOfAll(o *decls.OverloadDecl, args []typed) (exact *types.Type, kind types.Kind) {
	kind = o.ResultType().Kind()
	if kind == types.TypeParamKind {
		kind = types.UnspecifiedKind
	}
	first := true
	for i, p := range o.ArgTypes() {
		if !p.IsExactType(o.ResultType()) {
			continue
		}
		if kind == types.UnspecifiedKind && first {
			kind = args[i].kind
		}
		switch {
		case args[i].open:
		case first:
			exact, first = args[i].exact, false
		case exact != nil && (args[i].exact == nil || !exact.IsExactType(args[i].exact)):
			exact = nil
		}
		if kind != args[i].kind && o.ResultType().Kind() == types.TypeParamKind {
			kind = types.UnspecifiedKind
		}
	}
	return exact, kind
}

// occurrences returns how often a type has a type parameter.
func occurrences(t *types.Type, name string) int {
	if t.Kind() == types.TypeParamKind && t.TypeName() == name {
		return 1
	}
	n := 0
	for _, p := range t.Parameters() {
		n += occurrences(p, name)
	}
	return n
}

// checkPatterns refuses constant patterns that take too long to parse, or are too large when they are compiled, each
// or together, and returns the first that is too much.
func checkPatterns(all []ast.Expr) (int64, error) {
	work, size := 0, 0
	for _, at := range all {
		if work += regex.ParseWork(string(at.AsLiteral().(types.String))); work > regex.MaxParseWork {
			return at.ID(), regex.ErrParseWork
		}
	}
	for _, at := range all {
		n, err := regex.Size(string(at.AsLiteral().(types.String)))
		switch {
		case errors.Is(err, regex.ErrParseWork):
			return at.ID(), err
		case err != nil: // cel-go reports it
		case n > regex.MaxSize:
			return at.ID(), tooLarge(n)
		default:
			size += n
		}
		if size > maxSizeOfAll {
			return at.ID(), fmt.Errorf("the patterns of an expression must have at most %d instructions together when they are compiled", maxSizeOfAll)
		}
	}
	return 0, nil
}

// Deepest returns the number of parts of the largest type of a value or field in the types that an environment
// declares: 4 for map(string, list(string)).
func Deepest(declared ...*apiservercel.DeclType) int {
	seen, most := map[*apiservercel.DeclType]int{}, 1
	var sizeOf func(t *apiservercel.DeclType) int
	sizeOf = func(t *apiservercel.DeclType) int {
		if t == nil {
			return 0
		}
		if size, ok := seen[t]; ok {
			return size
		}
		seen[t] = 1
		for _, f := range t.Fields {
			sizeOf(f.Type)
		}
		size := min(1+sizeOf(t.KeyType)+sizeOf(t.ElemType), MaxWork)
		seen[t] = size
		most = max(most, size)
		return size
	}
	for _, t := range declared {
		sizeOf(t)
	}
	return most
}
