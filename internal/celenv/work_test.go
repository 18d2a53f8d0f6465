package celenv_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"

	"github.com/tidemark-dev/tidemark/internal/celenv"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// hostileTexts are texts of n bytes that may take long to read in one of the formats of CEL's libraries.
func hostileTexts(n int) []string {
	var all []string
	for _, pattern := range []string{"1", "9", "0", "1.", ".1", "1e", "e9", "1h", "1ns", "9999999h", "1:", "::", "1/", "a.", "a/", "-", "%61", "{", "[", "(a", "a*", "a?", "+", " ", "é", "\x00", "1.1.1-a+"} {
		all = append(all, strings.Repeat(pattern, n/len(pattern)))
	}
	for exponent := 10; exponent <= 1_000_000_000; exponent *= 10 {
		for _, format := range []string{"1e%d", "1e-%d", "-1.5E+%d", "1.5e-%d", "12345678901234567890e%d", "%dEi", "%dh", "::/%d", "1.2.3.4/%d", "v%d.0.0", "1.%d.0"} {
			all = append(all, fmt.Sprintf(format, exponent))
		}
	}
	return all
}

// TestWork calls the functions of CEL that read a string with texts that may take long. The time must stay
// in proportion to the number of bytes, however large the numbers in the text are.
func TestWork(t *testing.T) {
	tier.Full(t)
	env, err := celenv.Base().StoredExpressionsEnv().Extend(cel.Variable("s", cel.StringType))
	if err != nil {
		t.Fatal(err)
	}
	expressions := []string{
		`isQuantity(s) && quantity(s).compareTo(quantity("1")) != sign(quantity(s).add(quantity("1e-9"))) && quantity(s).isInteger()`,
		`duration(s) == duration("1s")`, `timestamp(s) == timestamp(s)`, `int(s) == 1`, `uint(s) == 1u`, `double(s) == 1.0`, `bytes(s).size() == 1`, `bool(s)`,
		`isIP(s) && ip(s) == ip("::1")`, `isCIDR(s) && cidr(s).containsIP("::1")`, `isURL(s) && url(s).getQuery().size() == 0`, `isSemver(s) && semver(s).compareTo(semver("1.0.0")) == 0`,
		`s.format([1.0])`, `s.split("").size() == 1`, `s.replace("a", "") == s`, `s.lowerAscii() == s`, `s.indexOf("aaa") == 1`, `s.lastIndexOf("ab") == 1`, `s.matches("^((a{1,10}){1,10})*$")`, `s.find("a.*b$") == ""`,
		`s.findAll("[a-z]+").size() == 0`, `s.trim() == s`, `strings.quote(s) == s`,
	}
	for _, name := range []string{"dns1123Label", "dns1123Subdomain", "qualifiedName", "labelValue", "uri", "uuid", "byte", "date", "datetime"} {
		expressions = append(expressions, fmt.Sprintf(`!format.named(%q).hasValue() || format.named(%q).value().validate(s).hasValue()`, name, name))
	}
	// Most take nanoseconds for each byte, and the steps of a regular expression microseconds. Powers of ten take hours.
	most := func(text string) time.Duration {
		return 20*time.Millisecond + time.Duration(len(text))*5*time.Microsecond
	}
	for _, expression := range expressions {
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			t.Fatalf("%s: %v", expression, issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		for _, text := range hostileTexts(100_000) {
			took := most(text) + 1
			for range 3 { // other work on the machine delays one of them
				if took > most(text) {
					begin := time.Now()
					program.Eval(map[string]any{"s": text}) // most are errors
					took = time.Since(begin)
				}
			}
			if took > most(text) {
				t.Errorf("%s: %.30q of %d bytes took %v", expression, text, len(text), took)
			}
		}
	}
}
