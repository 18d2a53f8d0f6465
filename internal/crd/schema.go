package crd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/tidemark-dev/tidemark/internal/celenv"
)

// version is one version of a definition. Its schema is compiled when it is needed.
type version struct {
	*versionHead
	of *definition
	// kept has the compiled schemas of the Set.
	kept *schemas

	mu       sync.Mutex // held to compile
	compiled atomic.Pointer[compiled]
	used     atomic.Bool // since the hand of the clock has passed: see compiledSchemas

	// The mu of schemas guards these.
	compiledCost int64 // bytes, about
	again        bool  // it was compiled before
}

// compiled is the compiled schema of a version. It is safe for concurrent use.
type compiled struct {
	// structural is nil if there is no schema. Then nothing is pruned.
	structural *structuralschema.Structural
	valid      func() *structuralschema.Structural // structural, nil if it is not a valid structural schema
	whole      *spec.Schema                        // for the library; nil: anything is valid
	status     *spec.Schema                        // nil: anything is valid
	rules      *rules                              // nil: there are none
	defaults   *defaults                           // of structural; nil: there are none
	compares   bool                                // rules need all metadata: see comparesMetadata
	patterns   sync.Map                            // string -> *pattern: see matches
	enums      sync.Map                            // pointer to the first value of a list -> enum

	prunes sync.Once
	root   *pruner // see compiled.pruner
}

// schema returns the compiled schema.
func (v *version) schema() (*compiled, error) {
	v.used.Store(true)
	if c := v.compiled.Load(); c != nil {
		return c, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if c := v.compiled.Load(); c != nil {
		return c, nil
	}
	c, err := v.compile()
	if err != nil {
		return nil, fmt.Errorf("the schema of %s in version %s: %w", v.of.head.Metadata.Name, v.Name, err)
	}
	v.compiled.Store(c)
	v.kept.add(v)
	return c, nil
}

// schemaText returns the schema as it is stored.
func (v *version) schemaText() []byte { return v.of.stored.Bytes()[v.Schema.from:v.Schema.to] }

// bytes returns the length of schemaText.
func (v *version) bytes() int64 { return v.Schema.to - v.Schema.from }

// props decodes the schema, nil if there is none, and calls prepare with it before it is converted.
func (v *version) props(prepare func(*apiextensionsv1.JSONSchemaProps)) (*apiextensions.JSONSchemaProps, error) {
	if v.bytes() == 0 {
		return nil, nil
	}
	var sent apiextensionsv1.CustomResourceValidation
	if err := json.Unmarshal(v.schemaText(), &sent); err != nil {
		return nil, err
	}
	prepare(sent.OpenAPIV3Schema)
	var internal apiextensions.CustomResourceValidation
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(&sent, &internal, nil); err != nil {
		return nil, err
	}
	return internal.OpenAPIV3Schema, nil
}

func (v *version) compile() (*compiled, error) {
	props, err := v.props(celenv.DisableCostlyRules)
	if err != nil {
		return nil, err
	}
	c := &compiled{valid: func() *structuralschema.Structural { return nil }}
	if props == nil {
		return c, nil
	}
	if _, c.whole, err = apivalidation.NewSchemaValidator(props); err != nil {
		return nil, err
	}
	if status, ok := props.Properties["status"]; ok && v.hasStatus() {
		if _, c.status, err = apivalidation.NewSchemaValidator(&status); err != nil {
			return nil, err
		}
	}
	if c.structural, err = structuralschema.NewStructural(props); err != nil {
		return nil, err
	}
	// PruneDefaults changes the schema itself. The validators share its defaults, but do not
	// use them.
	if err := structuraldefaulting.PruneDefaults(c.structural); err != nil {
		return nil, err
	}
	c.defaults = defaultsOf(c.structural)
	c.valid = sync.OnceValue(func() *structuralschema.Structural {
		if len(structuralschema.ValidateStructural(nil, c.structural)) > 0 {
			return nil
		}
		return c.structural
	})
	if inside(*c.structural)&aRule != 0 { // as in the library, rules in allOf alone are not checked
		c.rules = newRules(rulesOf(c.structural), bytes.Count(v.schemaText(), ruleMember))
	}
	c.compares = comparesMetadata(c.structural)
	return c, nil
}

// hasStatus reports whether the status is a subresource.
func (v *version) hasStatus() bool { return v.Subresources != nil && v.Subresources.Status != nil }

// schemas limits the memory of compiled schemas. Schemas that were compiled once have a
// small limit: each of many kinds may get one object only. Schemas that were needed again
// after eviction have a larger one. The garbage collector follows all their pointers: with
// 60 MB of schemas, a definition and its first object took three times as long.
type schemas struct {
	mu          sync.Mutex
	once, again compiledSchemas
}

// Limits on compiled schemas in bytes: see version.cost.
const (
	maxCompiledOnce  = 8 << 20
	maxCompiledAgain = 56 << 20
)

// compiledSchemas are compiled schemas with a common limit. They are evicted by the CLOCK
// algorithm.
type compiledSchemas struct {
	cost int64
	ring []*version
	hand int
}

// Compiled schemas were measured to be ten times as large as their text. Each rule has programs in addition, of some 4 KB
// with its message, and of 8 KB with an environment of its own.
const (
	compiledTimes = 10
	compiledRule  = 16 << 10 // bytes
)

// cost estimates the bytes of the compiled schema.
func (v *version) cost() int64 {
	text := v.schemaText()
	return int64(compiledTimes*len(text) + compiledRule*bytes.Count(text, ruleMember))
}

var ruleMember = []byte(`"rule":`)

func (s *schemas) add(v *version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.of.gone { // a request that began before it was replaced compiled it
		return
	}
	v.compiledCost = v.cost()
	if v.again {
		s.again.add(v, maxCompiledAgain)
		return
	}
	v.again = true
	s.once.add(v, maxCompiledOnce)
}

func (s *compiledSchemas) add(v *version, most int64) {
	s.ring = append(s.ring, v)
	s.cost += v.compiledCost
	for s.cost > most && len(s.ring) > 1 {
		s.hand %= len(s.ring)
		old := s.ring[s.hand]
		if old == v || old.used.Swap(false) {
			s.hand++
			continue
		}
		s.drop(s.hand)
	}
}

func (s *compiledSchemas) drop(i int) {
	old := s.ring[i]
	old.compiled.Store(nil)
	s.cost -= old.compiledCost
	s.ring = slices.Delete(s.ring, i, i+1)
}

// forget evicts the schemas of a definition that was replaced or deleted.
func (s *schemas) forget(d *definition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.gone = true
	for _, some := range []*compiledSchemas{&s.once, &s.again} {
		for i := 0; i < len(some.ring); {
			if some.ring[i].of == d {
				some.drop(i)
				continue
			}
			i++
		}
	}
}
