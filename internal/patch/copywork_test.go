package patch

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestCopyWork counts the bytes that many copies read and write: more than a few times the largest
// document are refused.
func TestCopyWork(t *testing.T) {
	patch := func(n int) []byte {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"op":"copy","from":"/a","path":"/b%d"}`, i)
		}
		return []byte("[" + b.String()[1:] + "]")
	}
	document := []byte(`{"a":"` + strings.Repeat("x", 100) + `"}`)
	if _, err := JSON(document, patch(1000)); err != nil {
		t.Errorf("1000 copies: %v", err)
	}
	if maxCopyWork > 8*MaxBytes {
		t.Errorf("%d bytes of work", maxCopyWork)
	}
	tier.Full(t) // a second of CPU
	_, err := JSON(document, patch(5000))
	if status, ok := err.(apierrors.APIStatus); !ok || status.Status().Code != http.StatusRequestEntityTooLarge || !strings.Contains(err.Error(), "copies too often") {
		t.Errorf("5000 copies: %v", err)
	}
}
