package oidc

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// uses reports whether an expression reads a claim by its name: claims.NAME or claims.?NAME.
func (e *expression) uses(claim string) bool {
	found := false
	ast.PreOrderVisit(e.ast.NativeRep().Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		found = found || selects(x, claim)
	}))
	return found
}

func selects(x ast.Expr, claim string) bool {
	switch x.Kind() {
	case ast.SelectKind:
		s := x.AsSelect()
		return s.FieldName() == claim && isClaims(s.Operand())
	case ast.CallKind:
		c := x.AsCall()
		if c.IsMemberFunction() || c.FunctionName() != operators.OptSelect || len(c.Args()) != 2 || !isClaims(c.Args()[0]) {
			return false
		}
		name := c.Args()[1]
		return name.Kind() == ast.LiteralKind && name.AsLiteral().Value() == claim
	}
	return false
}

func isClaims(x ast.Expr) bool {
	return x.Kind() == ast.IdentKind && x.AsIdent() == string(claimsVariable)
}
