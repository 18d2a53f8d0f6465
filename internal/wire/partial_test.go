package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestMetadataOf(t *testing.T) {
	for value, want := range map[string]string{
		`{"kind":"K","apiVersion":"v1","metadata":{"name":"a"},"spec":{"metadata":{"name":"b"}}}`: `{"name":"a"}`,
		`{"kind":"K","apiVersion":"v1","metadata":{}}`:                                            `{}`,
		`{"metadata":{"a":"\"}]\\","b":[{"c":{}}],"k{":"]"},"x":1}`:                               `{"a":"\"}]\\","b":[{"c":{}}],"k{":"]"}`,
		`{"data":{"k":"\"metadata\":{"},"metadata":{"name":"a"}}`:                                 `{"name":"a"}`,
		`{"kind":"K"}`:         "",
		`{"metadata":{"a":"b"`: "",
		`{"metadata":{"a":"\`:  "",
		``:                     "",
	} {
		got, err := MetadataOf([]byte(value))
		if string(got) != want || (err != nil) != (want == "") {
			t.Errorf("%s: %s, %v, want %s", value, got, err, want)
		}
	}
}

// FuzzMetadataOf: whatever the text, nothing is read beyond it; of an object it is the
// member of that name, in no time.
func FuzzMetadataOf(f *testing.F) {
	f.Add(`{"name":"a","annotations":{"x":"\"}"}}`)
	f.Add(`{"metadata":{"metadata":{}}}`)
	f.Add(`{"a":"\\`)
	f.Fuzz(func(t *testing.T, meta string) {
		_, _ = MetadataOf([]byte(meta))
		if !json.Valid([]byte(meta)) || !strings.HasPrefix(meta, "{") {
			return
		}
		begin := testkinds.CPUTime()
		got, err := MetadataOf([]byte(`{"kind":"K","apiVersion":"v1","metadata":` + meta + `,"metadata":{"x":"}"}}`))
		if err != nil || string(got) != strings.TrimRight(meta, " \t\r\n") {
			t.Errorf("%q, %v, want %q", got, err, meta)
		}
		if d := testkinds.CPUTime() - begin; d > 20*time.Second { // a quadratic reader takes minutes
			t.Errorf("%d bytes took %v", len(meta), d)
		}
	})
}

// TestEnvelope: an envelope is as the generated code of Kubernetes writes it, and one
// whose content is encoded, or of another type, is refused.
func TestEnvelope(t *testing.T) {
	o := &metav1.Status{Message: strings.Repeat("long ", 100), Code: 404}
	raw, err := Message(o)
	if err != nil {
		t.Fatal(err)
	}
	head := metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	want, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{Kind: "Status", APIVersion: "v1"}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if got := AppendEnvelope(nil, head, raw); string(got) != string(protobufPrefix)+string(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	event, err := (&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: AppendEnvelope(nil, head, raw)}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if got := protobufForm.Event(nil, "ADDED", head, raw); !bytes.Equal(got[protobufForm.Prefix:], event) || int(got[2])<<8|int(got[3]) != len(event) {
		t.Errorf("got  %q\nwant %q", got, event)
	}
	for u, ok := range map[*runtime.Unknown]bool{
		{Raw: raw}: true,
		{Raw: raw, ContentType: string(Protobuf)}: true,
		{Raw: raw, ContentType: string(JSON)}:     false,
		{Raw: raw, ContentEncoding: "gzip"}:       false,
	} {
		b, err := u.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := OpenEnvelope(append(bytes.Clone(protobufPrefix), b...)); (err == nil) != ok {
			t.Errorf("%q %q: %v", u.ContentType, u.ContentEncoding, err)
		}
	}
}

// TestMessageList: a list put together is the list that the generated code writes.
func TestMessageList(t *testing.T) {
	remaining := int64(3)
	list := metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "77", Continue: "tok", RemainingItemCount: &remaining}}
	var items []byte
	for _, name := range []string{"a", strings.Repeat("b", 300)} {
		o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
		list.Items = append(list.Items, o)
		meta, err := json.Marshal(o.ObjectMeta)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := PartialMessage(meta)
		if err != nil {
			t.Fatal(err)
		}
		items = protobufForm.Item(items, metav1.TypeMeta{}, raw)
	}
	raw, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	want := AppendEnvelope(nil, metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, raw)
	f := PartialListOf(Output{}, ListMeta{Revision: 77, Continue: "tok", Remaining: &remaining})
	got := append(append(protobufForm.ListHead(nil, &f, ListSize{Items: 2, Bytes: len(items)}), items...), protobufForm.Tail...)
	if !bytes.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// FuzzNegotiate checks that a hostile header costs at most a second, and that the result is one of
// the offers.
func FuzzNegotiate(f *testing.F) {
	f.Add("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", uint8(1))
	f.Add("*/*;stream=watch;q=0.1;;=;as", uint8(2))
	f.Add(strings.Repeat("application/json;as=x,", 3000), uint8(0))
	f.Fuzz(func(t *testing.T, header string, offer uint8) {
		begin := testkinds.CPUTime()
		out, err := Served{CBOR: offer > 127}.Negotiate(header, Offer(offer%uint8(len(offers))))
		var refused *NotAcceptable
		switch {
		case err != nil && !errors.As(err, &refused):
			t.Errorf("%v", err)
		case err == nil && (out.Media == "" || out.Form == Table && out.Binary() != nil || out.Media == CBOR && offer <= 127):
			t.Errorf("%q: %+v", header, out)
		}
		if d := testkinds.CPUTime() - begin; d > 20*time.Second { // a quadratic reader takes minutes
			t.Errorf("%d bytes took %v", len(header), d)
		}
	})
}
