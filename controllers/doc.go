// Package controllers connects the parts: observe reads, plan decides, build makes the objects, apply writes, status tells. No
// decision is taken here.
package controllers
