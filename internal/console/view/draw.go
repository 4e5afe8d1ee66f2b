package view

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// Measures of a drawing, in its own units. Wide: who follows stands to the right. Narrow: below, indented.
const (
	nodeWidth, nodeHeight = 232, 82
	wideGapX, wideGapY    = 150, 18
	narrowIndent          = 36
	narrowGapY            = 30
	margin                = 2
	head                  = 7
	nameRunes             = 24
	lineRunes             = 30
)

// Drawing is a cluster's topology: boxes, and arrows from who sends WAL to who follows.
type Drawing struct {
	Width, Height int
	// Description says the same in words.
	Description string
	Nodes       []Node
	Edges       []Edge
}

// Node is an instance's box.
type Node struct {
	X, Y, Width, Height int
	Name, Full          string
	Role, Detail        string
	Primary             bool
	Tone                Tone
}

// Edge is an arrow: its line, its head, and what stands beside it.
type Edge struct {
	Line, Head string
	Label      string
	LabelX     int
	LabelY     int
	Tone       Tone
}

// follower is an instance and those that follow it.
type follower struct {
	instance  v1.InstanceStatus
	by        string
	followers []*follower
}

// Draw draws the cluster's topology.
func Draw(c *v1.PostgresCluster, narrow bool) Drawing {
	roots := follow(c)
	p := pen{narrow: narrow}
	for _, root := range roots {
		p.place(root, 0)
	}
	p.drawing.Width, p.drawing.Height = p.right+margin, p.bottom+margin
	p.drawing.Description = describe(roots)
	return p.drawing
}

// follow says who follows whom. During a major upgrade the other generation's server follows the primary logically, and its standbys
// follow it. Whose place is not known stands by itself.
func follow(c *v1.PostgresCluster) []*follower {
	nodes := map[string]*follower{}
	for _, i := range c.Status.Instances {
		nodes[i.Name] = &follower{instance: i}
	}
	primary := nodes[c.Status.CurrentPrimary]
	var other *follower
	detached := func(string) bool { return false }
	if u := c.Status.Upgrade; u != nil && !u.Phase.Final() {
		name, members := u.Seed, u.Rolled
		if u.SwitchedOverAt != nil && u.Origin != "" {
			name, members = u.Origin, nil
		}
		if other = nodes[name]; other == primary {
			other = nil
		}
		detached = func(name string) bool { return other != nil && slices.Contains(members, name) }
	}
	var roots []*follower
	if primary != nil {
		roots = append(roots, primary)
	}
	for _, i := range c.Status.Instances {
		n := nodes[i.Name]
		switch {
		case n == primary:
		case primary == nil:
			roots = append(roots, n)
		case n == other:
			n.by = "logical"
			primary.followers = append(primary.followers, n)
		case detached(i.Name):
			other.followers = append(other.followers, n)
		case i.Role == v1.RoleStandby:
			primary.followers = append(primary.followers, n)
		default:
			roots = append(roots, n)
		}
	}
	return roots
}

// pen places nodes, from the top to the bottom.
type pen struct {
	narrow        bool
	drawing       Drawing
	right, bottom int
}

// place puts a node and those that follow it, and returns where its line comes in.
func (p *pen) place(f *follower, depth int) (x, y int) {
	if p.narrow {
		return p.placeNarrow(f, depth)
	}
	x = margin + depth*(nodeWidth+wideGapX)
	ends := make([][2]int, 0, len(f.followers))
	for _, child := range f.followers {
		childX, childY := p.place(child, depth+1)
		ends = append(ends, [2]int{childX, childY})
	}
	if len(ends) == 0 {
		y = p.row(wideGapY) + nodeHeight/2
	} else {
		y = (ends[0][1] + ends[len(ends)-1][1]) / 2
	}
	p.node(f, x, y-nodeHeight/2)
	from := x + nodeWidth
	for n, end := range ends {
		child := f.followers[n]
		edge := Edge{
			Line:  fmt.Sprintf("M%d %dH%dV%dH%d", from, y, from+wideGapX/4, end[1], end[0]-head),
			Label: label(child), LabelX: end[0] - head - 6, LabelY: end[1] - 7, Tone: edgeTone(child),
		}
		edge.Head = arrowHead(end[0], end[1])
		p.drawing.Edges = append(p.drawing.Edges, edge)
	}
	return x, y
}

func (p *pen) placeNarrow(f *follower, depth int) (x, y int) {
	x = margin + depth*narrowIndent
	top := p.row(narrowGapY)
	y = top + nodeHeight/2
	p.node(f, x, top)
	for _, child := range f.followers {
		childX, childY := p.place(child, depth+1)
		down := x + narrowIndent/2
		edge := Edge{
			Line:  fmt.Sprintf("M%d %dV%dH%d", down, top+nodeHeight, childY, childX-head),
			Label: label(child), LabelX: childX + nodeWidth, LabelY: childY - nodeHeight/2 - 7, Tone: edgeTone(child),
		}
		edge.Head = arrowHead(childX, childY)
		p.drawing.Edges = append(p.drawing.Edges, edge)
	}
	return x, y
}

// row is the top of the next free row.
func (p *pen) row(gap int) int {
	if p.bottom == 0 {
		return margin
	}
	return p.bottom + gap
}

func (p *pen) node(f *follower, x, y int) {
	i := f.instance
	node := Node{
		X: x, Y: y, Width: nodeWidth, Height: nodeHeight, Name: shortened(i.Name, nameRunes), Full: i.Name,
		Role: role(f), Detail: cut(detail(i), lineRunes), Primary: i.Role == v1.RolePrimary, Tone: instanceTone(i),
	}
	p.drawing.Nodes = append(p.drawing.Nodes, node)
	p.right, p.bottom = max(p.right, x+nodeWidth), max(p.bottom, y+nodeHeight)
}

// role is what the instance is, of which version and on which timeline.
func role(f *follower) string {
	i, parts := f.instance, []string{}
	switch {
	case f.by == "logical":
		parts = append(parts, "other version")
	case i.Role == "":
		parts = append(parts, "role unknown")
	case i.Synchronous:
		parts = append(parts, "standby, synchronous")
	default:
		parts = append(parts, string(i.Role))
	}
	if i.Version != "" {
		parts = append(parts, i.Version)
	}
	if i.Timeline > 0 {
		parts = append(parts, fmt.Sprintf("timeline %d", i.Timeline))
	}
	return strings.Join(parts, " · ")
}

func detail(i v1.InstanceStatus) string {
	state := i.State
	if state == "" {
		state = "Unknown"
	}
	if state == "Running" && !i.Ready {
		state = "Running, not ready"
	}
	if i.Node != "" {
		state += " on " + i.Node
	}
	return state
}

// label is how far a follower is behind.
func label(f *follower) string {
	lag := "lag unknown"
	if f.instance.LagBytes != nil {
		lag = Bytes(*f.instance.LagBytes) + " behind"
	}
	if f.by != "" {
		return f.by + ", " + lag
	}
	return lag
}

// edgeTone: an instance that is not ready, or whose lag is not known, is not known to follow.
func edgeTone(f *follower) Tone {
	switch {
	case !f.instance.Ready || f.instance.LagBytes == nil:
		return ToneIdle
	case *f.instance.LagBytes > 16<<20:
		return ToneWarn
	}
	return ToneGood
}

func arrowHead(x, y int) string {
	return fmt.Sprintf("M%d %dl-%d -%dv%dz", x, y, head+1, head-2, 2*(head-2))
}

// describe says the drawing in words, for those who do not see it.
func describe(roots []*follower) string {
	var sentences []string
	var tell func(f *follower)
	tell = func(f *follower) {
		for _, child := range f.followers {
			sentences = append(sentences, fmt.Sprintf("%s follows %s, %s", child.instance.Name, f.instance.Name, label(child)))
			tell(child)
		}
	}
	for _, root := range roots {
		sentences = append(sentences, fmt.Sprintf("%s is %s", root.instance.Name, role(root)))
		tell(root)
	}
	return strings.Join(sentences, ". ")
}
