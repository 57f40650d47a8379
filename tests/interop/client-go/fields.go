package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// sent are the types that clients send in protobuf.
var sent = []any{
	corev1.Binding{}, corev1.ConfigMap{}, corev1.Event{}, corev1.Namespace{}, corev1.Node{}, corev1.Pod{}, corev1.Secret{},
	corev1.ServiceAccount{}, coordinationv1.Lease{}, rbacv1.ClusterRole{}, rbacv1.ClusterRoleBinding{}, rbacv1.Role{},
	rbacv1.RoleBinding{}, apiextensionsv1.CustomResourceDefinition{}, metav1.DeleteOptions{},
}

// leaves are the types whose JSON isn't made of their fields.
var leaves = map[reflect.Type]bool{
	reflect.TypeFor[metav1.Time]():          true,
	reflect.TypeFor[metav1.MicroTime]():     true,
	reflect.TypeFor[metav1.FieldsV1]():      true,
	reflect.TypeFor[resource.Quantity]():    true,
	reflect.TypeFor[runtime.RawExtension](): true,
	reflect.TypeFor[intstr.IntOrString]():   true,
	reflect.TypeFor[apiextensionsv1.JSON](): true,
}

// printFields prints the embedded server's protobuf_fields.json: for each message the fields by their numbers, each
// with its name in JSON ("" for one whose own fields stand there), its shape, its type, and whether it is there even
// when it is empty.
func printFields() error {
	messages := map[string]map[string][]any{}
	for _, each := range sent {
		describeMessage(messages, reflect.TypeOf(each))
	}
	var lines []string
	for name, fields := range messages {
		line, err := json.Marshal(fields)
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%q:%s", name, line))
	}
	slices.Sort(lines)
	fmt.Printf("{\n%s\n}\n", strings.Join(lines, ",\n"))
	return nil
}

func describeMessage(messages map[string]map[string][]any, message reflect.Type) {
	if messages[messageName(message)] != nil || leaves[message] {
		return
	}
	fields := map[string][]any{}
	messages[messageName(message)] = fields
	for i := range message.NumField() {
		field := message.Field(i)
		number := strings.Split(field.Tag.Get("protobuf"), ",")
		if len(number) < 2 {
			// TypeMeta travels beside the message.
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && options != "inline" {
			name = field.Name
		}
		shape, held, pointer := "one", field.Type, false
		if held.Kind() == reflect.Pointer {
			held, pointer = held.Elem(), true
		}
		if held.Kind() == reflect.Slice && held.Elem().Kind() != reflect.Uint8 {
			shape, held = "list", held.Elem()
		} else if held.Kind() == reflect.Map {
			shape, held = "map", held.Elem()
		}
		// As in JSON, where only omitzero leaves out a struct.
		keepsEmpty := pointer || !strings.Contains(options, "omitzero") &&
			(held.Kind() == reflect.Struct && shape == "one" || !strings.Contains(options, "omitempty"))
		fields[number[1]] = []any{name, shape, typeName(held), keepsEmpty}
		if held.Kind() == reflect.Struct {
			describeMessage(messages, held)
		}
	}
}

func typeName(held reflect.Type) string {
	switch held.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32, reflect.Int64:
		return "int"
	case reflect.Float64:
		return "double"
	case reflect.Slice:
		return "bytes"
	case reflect.Struct:
		return messageName(held)
	default:
		panic("no name for " + held.String())
	}
}

// messageName names a type as OpenAPI does.
func messageName(message reflect.Type) string {
	host, path, _ := strings.Cut(message.PkgPath(), "/")
	parts := strings.Split(host, ".")
	name := ""
	for _, part := range parts {
		name = part + "." + name
	}
	return name + strings.ReplaceAll(path, "/", ".") + "." + message.Name()
}
