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
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// version is one version of a definition. Its schema is compiled when it is needed.
type version struct {
	*versionHead
	of *definition
	// kept is where compiled schemas are counted.
	kept *schemas

	mu       sync.Mutex // held to compile
	compiled atomic.Pointer[compiled]
	used     atomic.Bool // since the hand passed by: see schemas
	// compiledCost is what the compiled schema counts for. Guarded by the mu of schemas.
	compiledCost int64
	again        bool // it was compiled before; guarded by it too
}

// compiled is what a version's schema says of its objects. It is safe for concurrent
// use.
type compiled struct {
	// structural is nil where there is no schema: then everything is kept.
	structural *structuralschema.Structural
	valid      func() *structuralschema.Structural // nil where structural breaks the rules of such schemas
	whole      *spec.Schema                        // as the library has it; nil: anything
	status     *spec.Schema                        // nil: anything
	rules      *cel.Validator                      // nil: there are none
	compares   bool                                // the rules see all metadata: see comparesMetadata
	patterns   sync.Map                            // of text, by what they were written as: see matches
	enums      sync.Map                            // enum, by a pointer to the first of their values

	shaped sync.Once
	root   *shape // see shape
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

// schemaText is the schema as it is stored.
func (v *version) schemaText() []byte { return v.of.stored.Bytes()[v.Schema.from:v.Schema.to] }

// bytes are those of the schema in the definition.
func (v *version) bytes() int64 { return v.Schema.to - v.Schema.from }

// props is the schema as it was written, nil when there is none.
func (v *version) props() (*apiextensions.JSONSchemaProps, error) {
	if v.bytes() == 0 {
		return nil, nil
	}
	var sent apiextensionsv1.CustomResourceValidation
	if err := json.Unmarshal(v.schemaText(), &sent); err != nil {
		return nil, err
	}
	var internal apiextensions.CustomResourceValidation
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(&sent, &internal, nil); err != nil {
		return nil, err
	}
	return internal.OpenAPIV3Schema, nil
}

func (v *version) compile() (*compiled, error) {
	props, err := v.props()
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
	// The schema's defaults are pruned with it: they are the same, and the validators,
	// which have them too, do without.
	if err := structuraldefaulting.PruneDefaults(c.structural); err != nil {
		return nil, err
	}
	c.valid = sync.OnceValue(func() *structuralschema.Structural {
		if len(structuralschema.ValidateStructural(nil, c.structural)) > 0 {
			return nil
		}
		return c.structural
	})
	if inside(*c.structural)&aRule != 0 {
		c.rules = cel.NewValidator(rulesOf(c.structural), true, celconfig.PerCallLimit)
		narrow(c.rules)
	}
	c.compares = comparesMetadata(c.structural)
	return c, nil
}

// hasStatus tells whether the status is a subresource.
func (v *version) hasStatus() bool { return v.Subresources != nil && v.Subresources.Status != nil }

// schemas bounds what compiled schemas cost: little of those that were compiled once,
// for the first object of each of many kinds perhaps, and more of those that were needed
// again. All of it is pointers, which each run of the garbage collector follows: 60 MB of
// schemas tripled what a definition with its first object costs.
type schemas struct {
	mu          sync.Mutex
	once, again compiledSchemas
}

// How many bytes compiled schemas may have, as far as that is known: see cost.
const (
	maxCompiledOnce  = 8 << 20
	maxCompiledAgain = 56 << 20
)

// compiledSchemas are some of them. The oldest that was not used since it was last looked
// at goes first (a clock).
type compiledSchemas struct {
	cost int64
	ring []*version
	hand int
}

// What was measured of compiled schemas: they are ten times as large as their text, and
// each rule has an environment and a program of its own.
const (
	compiledTimes = 10
	compiledRule  = 100 << 10 // bytes
)

// cost is about how many bytes the compiled schema of a version has.
func (v *version) cost() int64 {
	text := v.schemaText()
	return int64(compiledTimes*len(text) + compiledRule*bytes.Count(text, ruleMember))
}

var ruleMember = []byte(`"rule":`)

func (s *schemas) add(v *version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.of.gone { // a request that began before compiled it
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

// forget drops the schemas of a definition that is replaced or gone.
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
