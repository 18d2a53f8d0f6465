package registry

import (
	"encoding/base64"
	"strings"
	"testing"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReadTable checks every combination of resourceVersion, resourceVersionMatch, limit and
// continue against the documents and kube-apiserver.
func TestReadTable(t *testing.T) {
	token := encodeToken(7, "a")
	const (
		needsVersion = "resourceVersionMatch is forbidden unless resourceVersion is provided"
		exactZero    = `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`
		withContinue = "resourceVersionMatch is forbidden when continue is provided"
		unsupported  = `Unsupported value: "Bogus"`
		bothVersions = "specifying resource version is not allowed when using continue"
		malformed    = `Invalid value: "abc"`
	)
	rows := []struct {
		version, match string
		limit, token   bool
		want           read
		fault          string // part of the error
	}{
		{"", "", false, false, mostRecent, ""},
		{"", "", true, false, mostRecent, ""},
		{"", "", false, true, continued, ""},
		{"", "", true, true, continued, ""},
		{"0", "", false, false, anyState, ""},
		{"0", "", true, false, anyState, ""},
		{"0", "", false, true, continued, ""},
		{"0", "", true, true, continued, ""},
		{"5", "", false, false, notOlderThan, ""},
		{"5", "", true, false, exactly, ""},
		{"5", "", false, true, 0, bothVersions},
		{"5", "", true, true, 0, bothVersions},
		{"abc", "", false, false, 0, malformed},
		{"abc", "", true, true, 0, bothVersions},
		{"-1", "", false, false, 0, "invalid resource version"},
		{"1.5", "", false, false, 0, "invalid resource version"},
		{"18446744073709551616", "", false, false, 0, "invalid resource version"},
		{"", "Exact", false, false, 0, needsVersion},
		{"", "Exact", true, true, 0, withContinue},
		{"0", "Exact", false, false, 0, exactZero},
		{"0", "Exact", true, false, 0, exactZero},
		{"5", "Exact", false, false, exactly, ""},
		{"5", "Exact", true, false, exactly, ""},
		{"5", "Exact", true, true, 0, withContinue},
		{"abc", "Exact", false, false, 0, malformed},
		{"", "NotOlderThan", false, false, 0, needsVersion},
		{"0", "NotOlderThan", false, false, anyState, ""},
		{"0", "NotOlderThan", true, false, anyState, ""},
		{"5", "NotOlderThan", false, false, notOlderThan, ""},
		{"5", "NotOlderThan", true, false, notOlderThan, ""},
		{"5", "NotOlderThan", false, true, 0, withContinue},
		{"5", "Bogus", false, false, 0, unsupported},
		{"", "Bogus", false, false, 0, needsVersion},
	}
	for _, row := range rows {
		o := &metainternal.ListOptions{ResourceVersion: row.version, ResourceVersionMatch: metav1.ResourceVersionMatch(row.match)}
		if row.limit {
			o.Limit = 3
		}
		if row.token {
			o.Continue = token
		}
		p, err := planList(o)
		switch {
		case row.fault != "" && (err == nil || !strings.Contains(err.Error(), row.fault)):
			t.Errorf("%+v: error %v", row, err)
		case row.fault == "" && err != nil:
			t.Errorf("%+v: %v", row, err)
		case p.read != row.want:
			t.Errorf("%+v: read %d", row, p.read)
		case err == nil && (p.limit > 0) != (row.limit && row.version != "0"):
			t.Errorf("%+v: limit %d", row, p.limit)
		case p.read == continued && (p.revision != 7 || p.after != "a"):
			t.Errorf("%+v: goes on at %d after %q", row, p.revision, p.after)
		}
	}
}

// TestTableIsWhole checks that some request uses each row of the table.
func TestTableIsWhole(t *testing.T) {
	reached := map[int]bool{}
	for _, v := range []version{unset, zero, number} {
		for _, match := range []string{"", "Exact", "NotOlderThan"} {
			for _, limit := range []int64{0, 1} {
				for _, token := range []string{"", "x"} {
					o := &metainternal.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatch(match), Limit: limit, Continue: token}
					for i, row := range listTable {
						if row.fits(v, o) {
							reached[i] = true
							break
						}
					}
				}
			}
		}
	}
	for i, row := range listTable {
		if !reached[i] {
			t.Errorf("row %d is never reached: %+v", i, row)
		}
	}
}

func TestTokens(t *testing.T) {
	for _, after := range []string{"a", "ns/name", "ns-1/a.b"} {
		got, err := decodeToken(encodeToken(12, after))
		if err != nil || got != (token{12, after}) {
			t.Errorf("%q: %+v, %v", after, got, err)
		}
	}
	bad := map[string]string{
		"garbage": "continue key is not valid: ",
		"e30":     "continue key is not valid: server does not recognize this encoded version ",
		"eyJ2IjoibWV0YS5rOHMuaW8vdjIiLCJydiI6MSwic3RhcnQiOiJhIn0": "server does not recognize this encoded version meta.k8s.io/v2",
		rawToken(`{"v":"meta.k8s.io/v1","rv":0,"start":"a"}`):     "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
		rawToken(`{"v":"meta.k8s.io/v1","rv":1,"start":""}`):      "encoded start key empty (version meta.k8s.io/v1)",
		rawToken(`{"v":"meta.k8s.io/v1","rv":1,"start":"../a"}`):  "continue key is not valid: ../a",
		rawToken(`{"v":"meta.k8s.io/v1","rv":1,"start":"a//b"}`):  "continue key is not valid: a//b",
		rawToken(`[]`): "continue key is not valid: json",
	}
	for text, want := range bad {
		if _, err := decodeToken(text); err == nil || !strings.HasPrefix(err.Error(), "invalid continue token: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	// A token without the NUL names the first key that is wanted.
	got, err := decodeToken(rawToken(`{"v":"meta.k8s.io/v1","rv":3,"start":"b"}`))
	if err != nil || !(got.after < "b" && got.after > "az") {
		t.Errorf("a token without NUL goes on after %q, %v", got.after, err)
	}
}

func FuzzToken(f *testing.F) {
	f.Add("garbage")
	f.Add(encodeToken(5, "ns/name"))
	f.Add(rawToken(`{"v":"meta.k8s.io/v1","rv":-1,"start":"a"}`))
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseToken(text)
		if err == nil && (got.revision == 0 || strings.HasPrefix(got.after, "/")) {
			t.Errorf("%q became %+v", text, got)
		}
	})
}

func rawToken(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
