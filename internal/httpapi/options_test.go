package httpapi

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidemark-dev/tidemark/internal/wire"
)

// FuzzListOptions holds the reading of parameters, and its words, against
// apimachinery's own.
func FuzzListOptions(f *testing.F) {
	for _, s := range []string{
		"", "limit=abc", "limit=", "limit=-1", "limit=99999999999999999999", "watch", "watch=0", "watch=FALSE&watch=1",
		"timeoutSeconds=x", "timeoutSeconds=", "sendInitialEvents", "sendInitialEvents=false", "labelSelector=a%3Db,c+in+(d)",
		"labelSelector=%25zz", "labelSelector==", "fieldSelector=a", "fieldSelector=metadata.name%3Dx,b!%3Dc", "continue=x&resourceVersion=5",
		"resourceVersionMatch=Exact&allowWatchBookmarks=1", "limit=1;b=2", "%zz=1&limit=3",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		v, _ := url.ParseQuery(query)
		var want metainternal.ListOptions
		wantErr := scheme.ParameterCodec.DecodeParameters(v, metav1.SchemeGroupVersion, &want)
		want.ShardSelector = ""
		got, err := listOptions(v)
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Fatalf("%q: error %v, want %v", query, err, wantErr)
		}
		if err != nil {
			return
		}
		if len(v) == 0 {
			want.LabelSelector, want.FieldSelector = labels.Everything(), fields.Everything()
		}
		if got.LabelSelector.String() != want.LabelSelector.String() || got.FieldSelector.String() != want.FieldSelector.String() {
			t.Fatalf("%q: selectors %q %q, want %q %q", query, got.LabelSelector, got.FieldSelector, want.LabelSelector, want.FieldSelector)
		}
		got.LabelSelector, got.FieldSelector, want.LabelSelector, want.FieldSelector = nil, nil, nil, nil
		if d := cmp.Diff(want, *got); d != "" {
			t.Fatalf("%q:\n%s", query, d)
		}
	})
}

// TestDeleteParameters holds the reading of the parameters of a deletion against apimachinery's own.
func TestDeleteParameters(t *testing.T) {
	for _, query := range []string{
		"", "orphanDependents", "orphanDependents=", "orphanDependents=false", "orphanDependents=FALSE", "orphanDependents=0", "orphanDependents=true&orphanDependents=false",
		"gracePeriodSeconds=5", "gracePeriodSeconds=", "gracePeriodSeconds=x", "gracePeriodSeconds=-1", "propagationPolicy=Orphan", "propagationPolicy=", "propagationPolicy=x",
		"dryRun", "dryRun=All&dryRun=x", "ignoreStoreReadErrorWithClusterBreakingPotential", "ignoreStoreReadErrorWithClusterBreakingPotential=false",
		"orphanDependents=false&propagationPolicy=Foreground", "preconditions=x", "preconditions.uid=x",
	} {
		v, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		var want metav1.DeleteOptions
		wantErr := scheme.ParameterCodec.DecodeParameters(v, metav1.SchemeGroupVersion, &want)
		got, err := deleteParameters(v)
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Errorf("%q: error %v, want %v", query, err, wantErr)
			continue
		}
		if err == nil && !cmp.Equal(want, *got) {
			t.Errorf("%q:\n%s", query, cmp.Diff(want, *got))
		}
	}
}

func TestDecodeDeleteOptions(t *testing.T) {
	tests := map[string]struct {
		media wire.MediaType
		body  string
		want  string // part of the error; empty: none
	}{
		"empty object":   {wire.JSON, `{}`, ""},
		"unknown fields": {wire.JSON, `{"kind":"DeleteOptions","apiVersion":"x/v9","nope":1}`, ""},
		"YAML":           {wire.YAML, "gracePeriodSeconds: 5\n", ""},
		"other kind":     {wire.JSON, `{"kind":"Foo","apiVersion":"x/v1"}`, `no kind "Foo" is registered for version "x/v1" in scheme`},
		"wrong type":     {wire.JSON, `{"gracePeriodSeconds":"x"}`, `json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64`},
		"truncated":      {wire.JSON, `{"gracePeriod`, "unexpected end of JSON input"},
		"array":          {wire.JSON, `[]`, "cannot unmarshal array"},
		"bad YAML":       {wire.YAML, "a: b: c", "yaml"},
		"protobuf":       {wire.Protobuf, "k8s\x00\x1a\x00", ""},
		"no protobuf":    {wire.Protobuf, "k8s", "expected prefix [107 56 115 0]"},
		"empty protobuf": {wire.Protobuf, "k8s\x00", "empty body"},
		"torn protobuf":  {wire.Protobuf, "k8s\x00\x0a\xff", "EOF"},
	}
	for name, tt := range tests {
		_, err := decodeDeleteOptions(tt.media, []byte(tt.body))
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		case err != nil && statusOf(err).Code/100 != 4:
			t.Errorf("%s: code %d", name, statusOf(err).Code)
		}
	}
}

func TestWarningHeaders(t *testing.T) {
	got := warningHeaders([]string{"", `a "b"`, "a\nb", "a\tb", "c", "c"})
	want := []string{`299 - "a \"b\""`, `299 - "c"`}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	var many []string
	for i := range 100 {
		many = append(many, strings.Repeat("ü", 300+i))
	}
	size := 0
	for _, h := range warningHeaders(many) {
		if n := strings.Count(h, "ü"); n > 256 {
			t.Errorf("a warning of %d runes", n)
		}
		size += len(h)
	}
	if size == 0 || size > warningBytes {
		t.Errorf("warnings of %d bytes", size)
	}
}
