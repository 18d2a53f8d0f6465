package wire

import (
	"errors"
	"strings"
	"testing"

	"github.com/munnerz/goautoneg"
)

const (
	objectTypes = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
	streamTypes = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
	withCBOR    = objectTypes + ", application/cbor"
)

func TestNegotiate(t *testing.T) {
	const unknown = unknownText + objectTypes
	tests := []struct {
		header  string
		offer   Offer
		want    Output
		refused string
	}{
		{header: "", want: Output{Media: JSON}},
		{header: "*/*", want: Output{Media: JSON}},
		{header: "application/json", want: Output{Media: JSON}},
		{header: "application/json, */*", want: Output{Media: JSON}},
		{header: "application/json;q=0", want: Output{Media: JSON}},
		{header: "application/json;charset=utf-8", want: Output{Media: JSON}},
		{header: "application/json;foo=bar", want: Output{Media: JSON}},
		{header: "application/json;pretty=1", want: Output{Media: JSON, Pretty: true}},
		{header: "application/json;stream=watch", want: Output{Media: JSON}},
		{header: "application/yaml", want: Output{Media: YAML}},
		{header: "application/yaml, application/json", want: Output{Media: YAML}},
		{header: "application/yaml;q=0.5, application/json;q=0.9", want: Output{Media: JSON}},
		{header: "text/html,*/*;q=0.1", want: Output{Media: JSON}},
		{header: "application/*, application/json", want: Output{Media: JSON}},
		{header: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", want: Output{Media: JSON, Form: Table}},
		{header: "application/json;as=Table;v=v1beta1;g=meta.k8s.io", want: Output{Media: JSON, Form: Table, Beta: true}},
		{header: "application/yaml;as=Table;v=v1;g=meta.k8s.io", want: Output{Media: YAML, Form: Table}},
		{header: "*/*;as=Table;v=v1;g=meta.k8s.io", want: Output{Media: JSON, Form: Table}},
		{header: "*/*;q=0.1,application/json;as=Table;v=v1;g=meta.k8s.io", want: Output{Media: JSON, Form: Table}},
		{header: "application/json;as=Table;v=v1;g=meta.k8s.io;q=0.1,application/json", want: Output{Media: JSON}},
		{header: "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json", want: Output{Media: JSON}},
		{header: "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", refused: onlyText + objectTypes},
		{header: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", offer: Responses, want: Output{Media: JSON}},
		{header: "application/json;as=Table;v=v1;g=meta.k8s.io", offer: Discovery, refused: onlyText + objectTypes},
		{header: "application/vnd.kubernetes.protobuf,application/json", want: Output{Media: Protobuf}},
		{header: "application/vnd.kubernetes.protobuf;stream=watch", offer: Streams, want: Output{Media: Protobuf}},
		{header: "application/yaml;stream=watch", refused: onlyText + objectTypes},
		{header: "application/json;sv=v1", want: Output{Media: JSON}},
		{header: "application/json;sv=v2", refused: onlyText + objectTypes},
		{header: "application/json;g=meta.k8s.io", refused: onlyText + objectTypes},
		{header: "application/json;as=;g=;v=", want: Output{Media: JSON}},
		{header: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/yaml", want: Output{Media: JSON, Form: Partial}},
		{header: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", want: Output{Media: Protobuf, Form: PartialList}},
		{header: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v2", refused: onlyText + objectTypes},
		{header: "application/*", refused: unknown},
		{header: "text/*", refused: unknown},
		{header: "text/html", refused: unknown},
		{header: "APPLICATION/JSON", refused: unknown},
		{header: "garbage", refused: unknown},
		{header: ",", refused: unknown},
		{header: "application/cbor", refused: unknown},
		{header: "text/html", offer: Lists, refused: unknown + ", " + streamTypes},
		{header: ";", offer: Lists, refused: unknown + ", " + streamTypes},
		{header: ",", offer: Streams, refused: unknown + ", " + streamTypes},
		{header: "text/html", offer: OnlyJSON, refused: unknownText + "application/json"},
		{header: "application/yaml", offer: OnlyJSON, refused: unknownText + "application/json"},
		{header: "text/html", offer: Documents, refused: onlyText + objectTypes},
		{header: "application/vnd.kubernetes.protobuf", want: Output{Media: Protobuf}},
		{header: "application/json;as=Foo;g=meta.k8s.io;v=v1", refused: onlyText + objectTypes},
		{header: "application/json;stream=foo", offer: Streams, refused: onlyText + objectTypes},
		{header: "application/yaml", offer: Streams, refused: onlyText + streamTypes},
	}
	for _, tt := range tests {
		got, err := Served{}.Negotiate(tt.header, tt.offer)
		message := ""
		var refused *NotAcceptable
		if errors.As(err, &refused) {
			message = refused.Message
		}
		if got != tt.want || message != tt.refused {
			t.Errorf("Negotiate(%q, %d) = %v, %q, want %v, %q", tt.header, tt.offer, got, message, tt.want, tt.refused)
		}
	}
}

func TestNegotiateAllocatesNothing(t *testing.T) {
	for _, header := range []string{"application/json", "application/cbor,application/json", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"} {
		if n := testing.AllocsPerRun(100, func() { _, _ = Served{}.Negotiate(header, Lists) }); n > 0 {
			t.Errorf("Negotiate(%q) allocates %v times", header, n)
		}
	}
}

// TestNegotiateCBOR: where it is served, for resources alone.
func TestNegotiateCBOR(t *testing.T) {
	const unknown = unknownText + withCBOR
	for _, tt := range []struct {
		header  string
		offer   Offer
		want    Output
		refused string
	}{
		{header: "application/cbor", want: Output{Media: CBOR}},
		{header: "application/cbor", offer: Lists, want: Output{Media: CBOR}},
		{header: "application/cbor", offer: Streams, want: Output{Media: CBOR}},
		{header: "application/cbor;stream=watch", offer: Streams, want: Output{Media: CBOR}},
		{header: "application/cbor", offer: Responses, want: Output{Media: CBOR}},
		{header: "application/cbor", offer: Resources, want: Output{Media: CBOR}},
		{header: "application/cbor", offer: Errors, want: Output{Media: CBOR}},
		{header: "application/cbor,application/json", want: Output{Media: CBOR}},
		{header: "application/json;q=0.9,application/cbor;q=1", want: Output{Media: CBOR}},
		{header: "*/*", want: Output{Media: JSON}},
		{header: "application/cbor;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", want: Output{Media: CBOR, Form: Partial}},
		{header: "application/cbor;as=Table;g=meta.k8s.io;v=v1", refused: onlyText + withCBOR},
		{header: "application/cbor;as=Table;g=meta.k8s.io;v=v1,application/json", want: Output{Media: JSON}},
		{header: "application/cbor-seq", refused: unknown},
		{header: "application/cbor-seq", offer: Lists, refused: onlyText + withCBOR},
		{header: "application/cbor-seq", offer: Streams, refused: onlyText + withCBOR},
		{header: "application/cbor-seq,application/json", offer: Streams, want: Output{Media: JSON}},
		{header: "application/cbor-seq,application/cbor", offer: Streams, want: Output{Media: CBOR}},
		{header: "application/cbor", offer: Discovery, refused: unknownText + objectTypes},
		{header: "application/cbor", offer: Documents, refused: onlyText + objectTypes},
		{header: "application/cbor", offer: OnlyJSON, refused: unknownText + "application/json"},
		{header: "text/html", refused: unknown},
		{header: "text/html", offer: Streams, refused: unknown + ", " + streamTypes + ", application/cbor-seq"},
		{header: "application/yaml", offer: Streams, refused: onlyText + streamTypes + ", application/cbor-seq"},
	} {
		got, err := Served{CBOR: true}.Negotiate(tt.header, tt.offer)
		message := ""
		var refused *NotAcceptable
		if errors.As(err, &refused) {
			message = refused.Message
		}
		if got != tt.want || message != tt.refused {
			t.Errorf("Negotiate(%q, %d) = %v, %q, want %v, %q", tt.header, tt.offer, got, message, tt.want, tt.refused)
		}
	}
}

// TestInput: the media of bodies and of patches.
func TestInput(t *testing.T) {
	for _, cbor := range []bool{false, true} {
		s := Served{CBOR: cbor}
		for contentType, want := range map[string]MediaType{"": JSON, string(JSON): JSON, string(YAML): YAML, string(Protobuf): Protobuf, string(CBOR): CBOR, "application/cbor-seq": "", "text/html": ""} {
			if want == CBOR && !cbor {
				want = ""
			}
			if got, ok := s.Input(contentType); got != want || ok != (want != "") {
				t.Errorf("%t: Input(%q) = %q, %t", cbor, contentType, got, ok)
			}
		}
		for contentType, want := range map[string]bool{"": false, "application/merge-patch+json": true, "application/json": false, "application/apply-patch+yaml": true, "application/apply-patch+cbor": cbor} {
			if _, ok := s.Patch(contentType); ok != want {
				t.Errorf("%t: Patch(%q) = %t", cbor, contentType, ok)
			}
		}
	}
}

// TestPreferredIsBounded: a header of the largest size is sorted in no time.
func TestPreferredIsBounded(t *testing.T) {
	header := strings.Repeat("a/*,", 130_000) + strings.Repeat("a/b,", 130_000)
	if got := preferred(nil, header); len(got) != maxClauses {
		t.Errorf("%d clauses", len(got))
	}
}

// FuzzPreferred holds the order of clauses against the library that
// kube-apiserver uses.
func FuzzPreferred(f *testing.F) {
	for _, s := range []string{"", "a/b", "*/*;q=0.1,a/b", "a/*,a/b;q=0.2;x=y", "a;b=c", " a / b ; q = 1 ", "a/b;q==1,*,c/d;q=x", "a/b/c", "*;q=0.5, /, /x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if strings.Count(header, ",") > 11 {
			return // beyond, the library's order is not a stable one
		}
		want := goautoneg.ParseAccept(header)
		got := preferred(nil, header)
		if len(got) != len(want) {
			t.Fatalf("preferred(%q) = %v, want %v", header, got, want)
		}
		for i, w := range want {
			g := got[i]
			if g.major != w.Type || g.minor != w.SubType || g.q != w.Q && (g.q == g.q || w.Q == w.Q) {
				t.Fatalf("preferred(%q)[%d] = %+v, want %+v", header, i, g, w)
			}
			params := map[string]string{}
			for k, v := range g.parameters() {
				if k != "q" {
					params[k] = v
				}
			}
			for k, v := range w.Params {
				if params[k] != v {
					t.Fatalf("preferred(%q)[%d]: parameter %q = %q, want %q", header, i, k, params[k], v)
				}
			}
		}
		_, _ = Served{}.Negotiate(header, Lists)
		Aggregated(header, Documents)
	})
}

func TestAggregated(t *testing.T) {
	const as = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for header, want := range map[string]Output{
		"":                      {},
		"application/json":      {},
		"application/json" + as: {Media: JSON},
		"application/json" + as + ";profile=nopeer":                    {Media: JSON},
		"application/json" + as + ";pretty=1":                          {Media: JSON, Pretty: true},
		"application/json" + as + ";stream=watch":                      {Media: JSON},
		"application/json" + as + ";stream=other":                      {},
		"application/json" + as + ";sv=v1":                             {},
		"application/json" + as + ",application/json":                  {Media: JSON},
		"application/json,application/json" + as:                       {Media: JSON},
		"application/yaml;q=0.5,application/json" + as + ";q=0.1":      {Media: JSON},
		"application/yaml" + as:                                        {Media: YAML},
		"application/yaml" + as + ";stream=watch":                      {},
		"application/vnd.kubernetes.protobuf" + as:                     {Media: Protobuf},
		"application/vnd.kubernetes.protobuf" + as + ",*/*;q=0.1":      {Media: Protobuf},
		"application/vnd.kubernetes.protobuf" + as + ";q=0.1,*/*" + as: {Media: JSON},
		"*/*" + as:              {Media: JSON},
		"application/*" + as:    {Media: JSON},
		"text/html" + as:        {},
		"application/cbor" + as: {},
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList":             {},
		"application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json": {},
	} {
		if got, ok := Aggregated(header, Documents); got != want || ok != (want != Output{}) {
			t.Errorf("Aggregated(%q) = %v, %t, want %v", header, got, ok, want)
		}
	}
	if got, ok := Aggregated("application/*"+as, Discovery); ok { // /api wants a literal type
		t.Errorf("Aggregated with a wildcard = %v", got)
	}
}

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "br, deflate": false, "br, gzip": true, "gzip;q=0": false, "gzip;q=0.5": true, "x-gzip": false,
	} {
		if got := AcceptsGzip(header); got != want {
			t.Errorf("AcceptsGzip(%q) = %v, want %v", header, got, want)
		}
	}
}
