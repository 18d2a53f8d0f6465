package policies_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// cel writes random expressions. Most of them compile; many fail while they run, on purpose:
// the words of errors count, too.
type cel struct {
	*rand.Rand
	kind   *kind
	names  []string // of variables, "variables.a", by type: their first letter
	params bool
	bound  []string // names of macros, all strings
	// literals: most operands are literals, so that fewer expressions fail.
	literals bool
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// f writes a format whose verbs are replaced by random expressions: %b a boolean, %i an integer,
// %s a string, %l a list of strings, %q a literal.
func (c *cel) f(depth int, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		switch format[i] {
		case 'b':
			b.WriteString(c.boolean(depth - 1))
		case 'i':
			b.WriteString(c.integer(depth - 1))
		case 's':
			b.WriteString(c.text(depth - 1))
		case 'l':
			b.WriteString(c.list(depth - 1))
		case 'q':
			b.WriteString(c.literal())
		default:
			b.WriteByte(format[i])
		}
	}
	return b.String()
}

// unlikely reports whether to use a format that never compiles: its policy decides nothing.
func (c *cel) unlikely() bool { return c.IntN(60) == 0 }

func (c *cel) literal() string {
	return "'" + pick(c.Rand, "", "a", "b", "1", "2", "x", "k1", "abc", "a,b", "A b", "10Mi", "100m", "10.0.0.1", "10.0.0.0/8", "https://example.com:80/p?q=1", "1.2.3", "2024-01-01T00:00:00Z", "90s", "ü☃", "dns-name", `it\'s`, `two\nlines`) + "'"
}

func (c *cel) boolean(depth int) string {
	if depth <= 0 {
		return c.f(1, pick(c.Rand, "true", "false", "has(object.metadata.labels)", c.kind.has(c.Rand), "object != null", "oldObject == null", "request.dryRun", "request.operation == 'CREATE'"))
	}
	format := pick(c.Rand,
		"(%b && %b)", "(%b || %b)", "!(%b)", "(%b ? %b : %b)", "%i < %i", "%i == %i", "%i >= %i", "%s == %s", "%s != %s", "%s in %l", "%s < %s",
		"%s.startsWith(%s)", "%s.endsWith(%q)", "%s.contains(%s)", "%s.matches(%q)", "%s.matches('^[a-z]+$')", "size(%s) > %i", "%s.size() == %i", "size(%l) <= 3",
		"has(object.metadata.labels) && 'p' in object.metadata.labels", "object.?metadata.annotations['k1'].orValue(%q) == %q", "object.?metadata.?nope.hasValue()",
		"isQuantity(%s) && quantity(%s).isGreaterThan(quantity('1'))", "quantity(%s).compareTo(quantity('10Mi')) == 0", "isURL(%s)", "url(%s).getHostname() == %q", "isIP(%s)", "ip(%s).family() == 4", "isCIDR(%s)", "cidr(%s).containsIP('10.0.0.1')",
		"format.dns1123Label().validate(%s).hasValue()", "!format.named('uuid').hasValue()", "sets.contains(%l, %l)", "sets.intersects(%l, [%q])", "isSemver(%s)", "semver(%s).isLessThan(semver('2.0.0'))",
		"type(%s) == string", "type(object) == map", "timestamp(%s).getFullYear() > 2000", "duration(%s) > duration('1m')", "request.userInfo.groups.exists(g, g == %q)", "request.kind.kind == %q", "request.?options.fieldManager.orValue('') == %q",
		"authorizer.group('').resource('secrets').namespace(%q).check('get').allowed()", "authorizer.path('/metrics').check(%q).reason() == ''", "authorizer.requestResource.check('update').allowed()",
		"namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == %s", "has(namespaceObject.spec.finalizers)", "[(%b) == true, (%b) == true].all(x, x)", "{'a': int(%i), 'b': int(%i)}['a'] == %i", "{%q: 1}.exists(k, k == %q)", "dyn(%s) == %i", "dyn(%i) > 1.5", "b'abc' == bytes(%s)", "string(%b) == 'true'", "dyn(%s) == null",
	)
	switch c.IntN(8) {
	case 0:
		if c.unlikely() {
			return c.f(depth, pick(c.Rand, "cel.bind(v, %s, v + v == %q)", "%s.matches('(')"))
		}
		name := fmt.Sprint("v", len(c.bound))
		list := c.list(depth - 1)
		c.bound = append(c.bound, name)
		body := c.boolean(depth - 1)
		c.bound = c.bound[:len(c.bound)-1]
		return fmt.Sprintf("%s.%s(%s, %s)", list, pick(c.Rand, "all", "exists", "exists_one"), name, body)
	case 1:
		return c.kind.boolean(c.Rand)
	}
	return c.f(depth, format)
}

func (c *cel) integer(depth int) string {
	if v := c.variable("i"); v != "" {
		return v
	}
	if depth <= 0 && c.literals {
		return pick(c.Rand, "0", "1", "2", "30")
	}
	if depth <= 0 {
		return pick(c.Rand, "0", "1", "2", "3", "-1", "10", "9223372036854775807", c.kind.integer(c.Rand))
	}
	if c.unlikely() {
		return c.f(depth, pick(c.Rand, "math.greatest(%i, %i)", "math.least([%i, %i, 1])", "math.abs(%i)"))
	}
	return c.f(depth, pick(c.Rand, "(%i + %i)", "(%i - %i)", "(%i * %i)", "(%i / %i)", "(%i %% %i)", "size(%s)", "size(%l)", "int(%s)", "%s.indexOf(%s)", "%s.lastIndexOf(%q)", "(%b ? %i : %i)", "[int(%i), int(%i)][%i]", "%l.indexOf(%s)", "[int(%i), 2, 3].sum()", "[int(%i), int(%i)].max()", "int(double(%i) * 1.5)", "int(quantity('10').asInteger())", "duration('90s').getMinutes()", "size(object.metadata)"))
}

func (c *cel) text(depth int) string {
	if v := c.variable("s"); v != "" {
		return v
	}
	if len(c.bound) > 0 && c.IntN(3) == 0 {
		return c.bound[c.IntN(len(c.bound))]
	}
	if c.params && c.IntN(6) == 0 {
		return pick(c.Rand, "params.data.k1", "params.data['k2']", "params.data.nope", "params.metadata.name")
	}
	if depth <= 0 && c.literals {
		return pick(c.Rand, c.literal(), c.literal(), c.literal(), "object.metadata.name", "request.operation")
	}
	if depth <= 0 {
		return pick(c.Rand, c.literal(), c.literal(), "object.metadata.name", "object.metadata.labels['p']", "object.metadata.labels.app", "object.metadata.annotations['k1']", c.kind.text(c.Rand), c.kind.text(c.Rand), "oldObject.metadata.name", "request.operation", "request.namespace", "request.userInfo.username", "request.resource.resource", "namespaceObject.metadata.name", "object.kind", "object.apiVersion")
	}
	if c.unlikely() {
		return c.f(depth, pick(c.Rand, "%s.quote()", "'%%.2f'.format([%i])", "%s.reverse()"))
	}
	return c.f(depth, pick(c.Rand, "(%s + %s)", "string(%i)", "string(%b)", "%s.substring(%i)", "%s.substring(%i, %i)", "%s.charAt(%i)", "%s.replace(%q, %s)", "%s.lowerAscii()", "%s.upperAscii()", "%s.trim()", "%s.split(',')[%i]", "%l.join('-')", "%l[%i]", "(%b ? %s : %s)", "object.?metadata.annotations['k1'].orValue(%s)", "'%%s and %%d'.format([%s, %i])", "'%%.2f'.format([double(%i)])", "string(url('https://example.com/a').getHost())", "%s.find('[a-z]+')", "string(ip('10.0.0.1'))", "string(dyn(%i))", "optional.of(%s).value()", "optional.none().value()", "strings.quote(%s)"))
}

// list writes a list. The lists of lists.range stay short: kube-apiserver makes one of any length,
// before it counts its cost, until its memory is full.
func (c *cel) list(depth int) string {
	if depth <= 0 {
		return c.f(1, pick(c.Rand, "['a', 'b']", "[%q]", "['x', 'k1', %q]", c.kind.list(c.Rand), "request.userInfo.groups"))
	}
	switch c.IntN(6) {
	case 0, 1:
		name := fmt.Sprint("v", len(c.bound))
		list := c.list(depth - 1)
		c.bound = append(c.bound, name)
		defer func() { c.bound = c.bound[:len(c.bound)-1] }()
		if c.IntN(2) == 0 {
			return fmt.Sprintf("%s.filter(%s, %s)", list, name, c.boolean(depth-1))
		}
		return fmt.Sprintf("%s.map(%s, %s)", list, name, c.text(depth-1))
	}
	return c.f(depth, pick(c.Rand, "[string(%s), string(%s)]", "%s.split(%q)", "(%l + %l)", "(%b ? %l : %l)", "%l.sort()", "%l.distinct()", "%l.slice(0, %i)", "%l.reverse()", "[%l.map(x, string(x)), %l.map(x, string(x))].flatten()", "lists.range(size(%l)).map(n, string(n))", "%s.findAll('[a-z]')"))
}

// variable returns a variable of a type, sometimes.
func (c *cel) variable(of string) string {
	if len(c.names) == 0 || c.IntN(5) > 0 {
		return ""
	}
	if name := pick(c.Rand, c.names...); strings.HasPrefix(name, of) {
		return "variables." + name
	}
	return ""
}

// broken changes an expression so that, most often, it does not compile.
func (c *cel) broken(text string) string {
	runes := []rune(text)
	at := c.IntN(len(runes))
	switch c.IntN(5) {
	case 0:
		return string(runes[:at]) + string(runes[min(at+1+c.IntN(3), len(runes)):])
	case 1:
		return string(runes[:at]) + pick(c.Rand, "(", ")", ".", "'", "[", "}", "&&", " nope", "1", "==", "\n", "\\", "§", "!", "params.", "variables.x", "?") + string(runes[at:])
	case 2:
		return text + pick(c.Rand, " +", " && 1", ".nope()", ".all(x)", "[", " == 1", " in 1")
	case 3:
		return pick(c.Rand, "nope(", "1 + ", "undeclared.", "Object{", "!", "-", "size(") + text
	}
	return strings.Replace(text, pick(c.Rand, "object", "request", "size", "string", "==", "'"), pick(c.Rand, "objekt", "", "1", "params", "namespaceObject.nope", "request.nope"), 1)
}
