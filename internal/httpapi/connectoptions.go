package httpapi

import (
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// readParameters reads the parameters of a connection into its options, a pointer to a struct whose
// fields are strings, booleans, lists of strings and lists of ports.
func readParameters(v url.Values, options runtime.Object) error {
	s := reflect.ValueOf(options).Elem()
	for i := range s.NumField() {
		name, _, _ := strings.Cut(s.Type().Field(i).Tag.Get("json"), ",")
		values := v[name]
		if name == "" || len(values) == 0 {
			continue
		}
		switch f := s.Field(i).Addr().Interface().(type) {
		case *string:
			*f = values[0]
		case *bool:
			*f = values[0] != "0" && !strings.EqualFold(values[0], "false")
		case *[]string:
			*f = values
		case *[]int32:
			ports, err := readPorts(values)
			if err != nil {
				return err
			}
			*f = ports
		}
	}
	return nil
}

// readPorts reads ports from parameters that each have one or more, separated by commas.
func readPorts(values []string) ([]int32, error) {
	var ports []int32
	for _, value := range values {
		for text := range strings.SplitSeq(value, ",") {
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot convert to []int32: %v", err))
			}
			ports = append(ports, int32(port))
		}
	}
	return ports, nil
}
