package celenv

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
)

// Compile compiles an expression, as env.Compile does. It returns the work to type-check it, and refuses an expression that
// takes more than MaxWork before it checks it. deepest is the result of Deepest for the types that env declares.
func Compile(env *cel.Env, text string, deepest int) (made *cel.Ast, work int, issues *cel.Issues) {
	parsed, issues := env.Parse(text)
	if issues.Err() != nil {
		return nil, 0, issues
	}
	work, id, err := weigh(env, parsed, deepest)
	if err != nil {
		info := parsed.NativeRep().SourceInfo()
		errs := common.NewErrors(parsed.Source())
		errs.ReportErrorAtID(id, info.GetStartLocation(id), "%s", err.Error())
		return nil, work, cel.NewIssuesWithSourceInfo(errs, info)
	}
	checked, issues := env.Check(parsed)
	if issues.Err() != nil {
		return nil, work, issues
	}
	return checked, work, nil
}

const (
	// maxText bounds the text of errors that is returned as it is.
	maxText = 32 << 10
	// maxErrors is how many errors a longer text has, without the line of the expression, and maxError how long each is.
	maxErrors = 5
	maxError  = 512
)

// Text returns the text of errors. Each error quotes the line that it is in: an expression of one line of 16 KB with a
// hundred errors has 1.6 MB of them.
func Text(issues *cel.Issues) string { return Shorten(issues.String()) }

// Shorten shortens the text of compilation errors. A long one keeps the first errors, without the
// quoted source.
func Shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	const begin = "ERROR: "
	head, rest, _ := strings.Cut(text, begin)
	errs := strings.Split(rest, "\n"+begin)
	var b strings.Builder
	b.WriteString(head[:min(len(head), maxError)])
	for i, e := range errs[:min(len(errs), maxErrors)] {
		if i > 0 {
			b.WriteString("\n")
		}
		e, _, _ = strings.Cut(e, "\n")
		b.WriteString(begin + strings.ToValidUTF8(e[:min(len(e), maxError)], ""))
	}
	if len(errs) > maxErrors {
		fmt.Fprintf(&b, "\n%d more errors", len(errs)-maxErrors)
	}
	return b.String()
}

// Work returns the work to type-check an expression that a library compiles, and the error of Compile if that takes too
// long. It does not report other errors, which the library does.
func Work(text string, deepest int) (int, error) {
	if text == "" {
		return 0, nil
	}
	parsed, issues := Base().StoredExpressionsEnv().Parse(text)
	if issues.Err() != nil {
		return 0, nil
	}
	work, _, err := weigh(Base().StoredExpressionsEnv(), parsed, deepest)
	return work, err
}

// maxCopied is the maximum number of nodes of an operand of optMap and optFlatMap. The macros copy it, so a chain of
// them doubles the expression with each.
const maxCopied = 500

// copyingMacros are optMap and optFlatMap of env, with the limit maxCopied.
func copyingMacros(env *cel.Env) cel.EnvOption {
	var all []cel.Macro
	for _, m := range env.Macros() {
		if m.Function() != "optMap" && m.Function() != "optFlatMap" {
			continue
		}
		all = append(all, cel.ReceiverMacro(m.Function(), m.ArgCount(), func(eh cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
			if n := maxCopied; !fewNodes(target, &n) {
				return nil, eh.NewError(target.ID(), fmt.Sprintf("the operand of %s must have at most %d nodes when its macros are expanded", m.Function(), maxCopied))
			}
			return m.Expander()(eh, target, args)
		}))
	}
	return cel.Macros(all...)
}

// fewNodes reports whether an expression has at most *most nodes, and subtracts them.
func fewNodes(e ast.Expr, most *int) bool {
	if *most--; *most < 0 {
		return false
	}
	for _, child := range children(e) {
		if !fewNodes(child, most) {
			return false
		}
	}
	return true
}

// children returns the operands of an expression.
func children(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			return append([]ast.Expr{call.Target()}, call.Args()...)
		}
		return call.Args()
	case ast.ListKind:
		return e.AsList().Elements()
	case ast.MapKind:
		var all []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			all = append(all, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return all
	case ast.StructKind:
		var all []ast.Expr
		for _, f := range e.AsStruct().Fields() {
			all = append(all, f.AsStructField().Value())
		}
		return all
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		return []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()}
	}
	return nil
}
