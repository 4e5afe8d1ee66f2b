{{- define "gvList" -}}
<!-- Generated from the types in apis/ by `make api-docs`; do not edit. -->
{{ range . }}
{{ template "gvDetails" . }}
{{ end }}
{{- end -}}
