{{- define "gvDetails" -}}
# API {{ .GroupVersionString }}

{{ .Doc }}
{{ range .SortedTypes }}
{{ template "type" . }}
{{- end }}
{{- end -}}
