package oidc

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authn/oidc/oidctest"
)

// TestMappings compares the mapping of claims with that of kube-apiserver in testdata/mappings.txt.
func TestMappings(t *testing.T) {
	b, err := os.ReadFile("testdata/mappings.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := strings.Split(string(b), "\n== ")[1:]
	if len(cases) < 60 {
		t.Fatalf("%d cases", len(cases))
	}
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		for _, one := range cases {
			name, rest, _ := strings.Cut(one, " ==\n")
			config, rest, _ := strings.Cut(rest, "-- claims --\n")
			text, want, _ := strings.Cut(rest, "\n-- want --\n")
			want = strings.TrimSuffix(want, "\n")

			a := bySub()
			if err := yaml.UnmarshalStrict([]byte(config), &a); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if a.ClaimMappings.Username.Expression != "" {
				a.ClaimMappings.Username.Claim, a.ClaimMappings.Username.Prefix = "", nil
			}
			var more map[string]any
			if err := json.Unmarshal([]byte(text), &more); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for claim, v := range more {
				if v == nil {
					more[claim] = json.RawMessage("null")
				}
			}
			if _, ok := more["sub"]; !ok {
				more["sub"] = nil // no subject but that of the case
			}
			i := open(t, issuer, a)
			got := ""
			r, err := i.Authenticate(t.Context(), issuer.Token(t, time.Now(), more))
			if err != nil {
				got = "[invalid bearer token, " + err.Error() + "]"
			} else {
				u := r.User.Info()
				u.Groups = append(u.Groups, authn.Authenticated)
				shown, _ := json.Marshal(u)
				got = string(shown)
			}
			i.Close()
			if got != want {
				t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
			}
		}
	})
}

// TestEmptyName checks that a user must have a name.
func TestEmptyName(t *testing.T) {
	r := compiled(t, bySub())
	for _, text := range []string{`""`, `null`} {
		if u, err := r.user(t.Context(), claims{"sub": json.RawMessage(text)}); err == nil {
			t.Errorf("%s: %+v", text, u)
		}
	}
}

// TestSharedRules checks that requests use the rules of an issuer concurrently.
func TestSharedRules(t *testing.T) {
	a := bySub()
	a.ClaimMappings.Groups.Expression = `dyn(claims.g).map(x, "g:" + x)`
	a.UserValidationRules = []apiserver.UserValidationRule{{Expression: `user.groups.exists(g, g == "g:" + user.username)`}}
	r := compiled(t, a)
	done := make(chan string, 4)
	for n := range cap(done) {
		name := string(rune('a' + n))
		go func() {
			for range 200 {
				u, err := r.user(t.Context(), claims{"sub": json.RawMessage(`"` + name + `"`), "g": json.RawMessage(`["x","` + name + `"]`)})
				if err != nil || u.Name != name || !slices.Equal(u.Groups, []string{"g:x", "g:" + name}) {
					t.Errorf("%s: %+v, %v", name, u, err)
				}
			}
			done <- name
		}()
	}
	for range cap(done) {
		<-done
	}
}

// TestDisallowed checks that the issuer of service accounts cannot be configured.
func TestDisallowed(t *testing.T) {
	_, wrong := Compile(field.NewPath("jwt").Index(0), bySub(), []string{"https://z.test", oidctest.URL})
	want := `jwt[0].issuer.url: Invalid value: "https://issuer.test": URL must not overlap with disallowed issuers: [https://issuer.test https://z.test]`
	if len(wrong) != 1 || wrong[0].Error() != want {
		t.Error(wrong)
	}
}
