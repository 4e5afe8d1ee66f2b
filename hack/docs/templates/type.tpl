{{- define "type" -}}
{{- $type := . -}}
{{- if markdownShouldRenderType $type -}}
## {{ $type.Name }}

{{ $type.Doc }}
{{ if $type.References }}
Used in:{{ range $type.SortedReferences }} {{ markdownRenderTypeLink . }}{{ end }}
{{ end }}
{{- if $type.Validation }}
Rules:
{{ range $type.Validation }}
- {{ . }}
{{- end }}
{{ end }}
{{- if $type.Members }}
| Field | Description | Default | Rules |
| --- | --- | --- | --- |
{{ if $type.GVK -}}
| `apiVersion` _string_ | `{{ $type.GVK.Group }}/{{ $type.GVK.Version }}` | | |
| `kind` _string_ | `{{ $type.GVK.Kind }}` | | |
{{ end -}}
{{ range $type.Members -}}
| `{{ .Name  }}` _{{ markdownRenderType .Type }}_ | {{ template "type_members" . }} | {{ markdownRenderDefault .Default }} | {{ range $i, $rule := .Validation }}{{ if $i }}<br />{{ end }}{{ $rule | replace "Optional: {}" "optional" | replace "Required: {}" "required" | markdownRenderFieldDoc | replace "\\{" "{" | replace "\\}" "}" }}{{ end }} |
{{ end -}}
{{ end -}}
{{- if $type.EnumValues }}
| Value | Meaning |
| --- | --- |
{{ range $type.EnumValues -}}
| `{{ .Name }}` | {{ markdownRenderFieldDoc .Doc }} |
{{ end -}}
{{ end -}}
{{- end -}}
{{- end -}}
