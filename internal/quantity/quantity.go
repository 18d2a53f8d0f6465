// Package quantity bounds the quantities that clients send.
//
// resource.ParseQuantity and the methods of a Quantity compute powers of ten: the work grows with the
// value of the exponent, and with the square of the number of digits. "1e-100000000" takes minutes to
// parse. The largest quantity that Kubernetes documents is 2^63-1, and the smallest is 1n. So the server
// checks the text of each quantity with Check before anything parses it.
package quantity

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// MaxBytes is the maximum length of a quantity.
	MaxBytes = 128
	// MaxExponent is the maximum magnitude of its decimal exponent.
	MaxExponent = 128
	// maxStored is both limits for stored quantities. They are larger, because the server also stores sums.
	maxStored = 4 * MaxExponent
)

// ErrTooLarge is the error of a quantity that is too long, or whose exponent is too large.
var ErrTooLarge = fmt.Errorf("a quantity must have at most %d bytes and an exponent between -%d and %d", MaxBytes, MaxExponent, MaxExponent)

// Check returns ErrTooLarge for a text that takes too long to parse. It does not check the syntax.
func Check(text string) error {
	if n, _ := exponent(text); len(text) > MaxBytes || n > MaxExponent {
		return ErrTooLarge
	}
	return nil
}

// Parse is resource.ParseQuantity with the limits of Check.
func Parse(text string) (resource.Quantity, error) {
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// Bound returns a stored quantity as it is, or a limit in its place if it takes too long to parse: 2^63-1
// for a value that is too large, and 1n for one that is too small.
func Bound(text string) string {
	n, small := exponent(text)
	if len(text) <= maxStored && n <= maxStored {
		return text
	}
	bound := "9223372036854775807"
	if small {
		bound = "1n"
	}
	if strings.HasPrefix(strings.TrimSpace(text), "-") {
		bound = "-" + bound
	}
	return bound
}

// exponent returns the magnitude of the decimal exponent at the end of a text, and whether it is
// negative. It is zero for a text without one.
func exponent(text string) (magnitude uint64, negative bool) {
	i := strings.LastIndexAny(text, "eE")
	if i < 0 {
		return 0, false
	}
	digits := strings.TrimSpace(text[i+1:])
	if digits != "" && (digits[0] == '+' || digits[0] == '-') {
		negative = digits[0] == '-'
		digits = digits[1:]
	}
	magnitude, err := strconv.ParseUint(digits, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // such as the suffix Ei
		return 0, false
	}
	return magnitude, negative
}
