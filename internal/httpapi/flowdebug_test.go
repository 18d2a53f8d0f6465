package httpapi

import (
	"strings"
	"testing"
)

// TestFlowCells: a text of a client cannot break the format of a page, nor make it large.
func TestFlowCells(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "bob": "bob", "a\tb\n\v\f\x00\x7f": "a?b?????", "é, b": "é, b",
		strings.Repeat("x", 5000): strings.Repeat("x", cellBytes) + "...",
	} {
		if got := cellText(text); got != want {
			t.Errorf("%.20q: %.40q, want %.40q", text, got, want)
		}
	}
	if got := seatSeconds(1.5).String(); got != "1.50000000ss" {
		t.Error(got)
	}
}
