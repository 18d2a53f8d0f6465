package expression

import apiservercel "k8s.io/apiserver/pkg/cel"

// The types of request and namespaceObject have kube-apiserver's names and fields: they are in the
// texts of errors.

type fields map[string]*apiservercel.DeclType

// objectType declares a type of an object with required and optional fields.
func objectType(name string, required, optional fields) *apiservercel.DeclType {
	all := map[string]*apiservercel.DeclField{}
	for field, t := range required {
		all[field] = apiservercel.NewDeclField(field, t, true, nil, nil)
	}
	for field, t := range optional {
		all[field] = apiservercel.NewDeclField(field, t, false, nil, nil)
	}
	return apiservercel.NewObjectType("kubernetes."+name, all)
}

// Types of fields that occur often.
var (
	text    = apiservercel.StringType
	texts   = apiservercel.NewListType(text, -1)
	textMap = apiservercel.NewMapType(text, text, -1)
	moment  = apiservercel.TimestampType
)

// requestType is the type of the variable request.
func requestType() *apiservercel.DeclType {
	kind := objectType("GroupVersionKind", fields{"group": text, "version": text, "kind": text}, nil)
	resource := objectType("GroupVersionResource", fields{"group": text, "version": text, "resource": text}, nil)
	user := objectType("UserInfo", nil, fields{
		"username": text, "uid": text, "groups": texts, "extra": apiservercel.NewMapType(text, texts, -1),
	})
	return objectType("AdmissionRequest", fields{
		"kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
		"name": text, "operation": text, "userInfo": user,
	}, fields{
		"subResource": text, "requestSubResource": text, "namespace": text,
		"dryRun": apiservercel.BoolType, "options": apiservercel.DynType,
	})
}

// namespaceType is the type of the variable namespaceObject.
func namespaceType() *apiservercel.DeclType {
	condition := objectType("NamespaceCondition", fields{
		"status": text, "type": text, "lastTransitionTime": moment, "message": text, "reason": text,
	}, nil)
	metadata := objectType("NamespaceMetadata", fields{
		"name": text, "generateName": text, "namespace": text, "labels": textMap, "annotations": textMap,
		"UID": text, "creationTimestamp": moment, "deletionGracePeriodSeconds": apiservercel.IntType,
		"deletionTimestamp": moment, "generation": apiservercel.IntType, "resourceVersion": text, "finalizers": texts,
	}, nil)
	return objectType("Namespace", fields{
		"metadata": metadata,
		"spec":     objectType("NamespaceSpec", fields{"finalizers": texts}, nil),
		"status": objectType("NamespaceStatus", fields{
			"conditions": apiservercel.NewListType(condition, -1), "phase": text,
		}, nil),
	}, nil)
}
