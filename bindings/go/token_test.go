package radixkv_test

import (
	"crypto/sha256"
	"math"
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// K02
func TestBins(t *testing.T) {
	for bin := uint32(0); bin < radixkv.BinCount; bin++ {
		value, err := radixkv.CoordValue(bin)
		must(t, err)
		again, err := radixkv.CoordBin(value)
		must(t, err)
		equal(t, "bin of a coordinate", again, bin)
		value, err = radixkv.SizeValue(bin)
		must(t, err)
		again, err = radixkv.SizeBin(value)
		must(t, err)
		equal(t, "bin of a size", again, bin)
	}
	for _, value := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -0.1, 1.1} {
		_, err := radixkv.CoordBin(value)
		wants(t, err, radixkv.InvalidArgument)
		_, err = radixkv.SizeBin(value)
		wants(t, err, radixkv.InvalidArgument)
	}
	_, err := radixkv.CoordValue(radixkv.BinCount)
	wants(t, err, radixkv.InvalidArgument)
	_, err = radixkv.SizeValue(radixkv.BinCount)
	wants(t, err, radixkv.InvalidArgument)
}

// K03
func TestImageDigest(t *testing.T) {
	for _, bytes := range [][]byte{nil, {}, []byte("an image"), make([]byte, 1<<16)} {
		digest, err := radixkv.ImageDigest(bytes)
		must(t, err)
		whole := sha256.Sum256(bytes)
		equal(t, "digest", digest, radixkv.Digest(whole[:16]))
	}
}

// K04
func TestBuildTokensAndRegions(t *testing.T) {
	a, b := radixkv.Digest{1}, radixkv.Digest{2}
	region := func(start, end uint64) radixkv.Region {
		return radixkv.Region{Start: start, End: end}
	}
	cases := []struct {
		name    string
		prompt  radixkv.Tokens
		ids     []uint32
		indices []uint64
		regions []radixkv.Region
		count   int
	}{
		{"no item", radixkv.Text([]uint32{7, 8}), []uint32{7, 8}, nil, nil, 2},
		{"nothing", radixkv.Tokens{}, nil, nil, nil, 0},
		{
			"an image at the very end",
			radixkv.Tokens{IDs: []uint32{7, 8}, Items: []radixkv.Item{radixkv.Image(2, a, 5)}},
			[]uint32{7, 8, 0}, []uint64{2}, []radixkv.Region{region(2, 7)}, 7,
		},
		{
			"adjacent, equal images and a coordinate",
			radixkv.Tokens{IDs: []uint32{7, 8}, Items: []radixkv.Item{
				radixkv.Image(1, b, 3), radixkv.Image(1, b, 3), radixkv.Coord(2, 9),
			}},
			[]uint32{7, 0, 0, 8, 0},
			[]uint64{1, 2, 4},
			[]radixkv.Region{region(1, 4), region(4, 7)},
			9,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			built, err := radixkv.BuildTokens(c.prompt)
			must(t, err)
			equalSlices(t, "ids", built.IDs, c.ids)
			var indices []uint64
			for i, item := range built.Items {
				indices = append(indices, item.TokenIndex)
				item.TokenIndex = c.prompt.Items[i].TokenIndex
				equal(t, "item", item, c.prompt.Items[i])
			}
			equalSlices(t, "places", indices, c.indices)
			regions, err := built.Regions()
			must(t, err)
			equalSlices(t, "regions", regions, c.regions)
			count, err := built.PositionCount()
			must(t, err)
			equal(t, "positions", count, c.count)
		})
	}
}

// M01
func TestBadTokens(t *testing.T) {
	ids := make([]uint32, 4)
	cases := map[string][]radixkv.Item{
		"index beyond the list":    {radixkv.Coord(4, 0)},
		"negative index":           {radixkv.Coord(-1, 0)},
		"twice at one index":       {radixkv.Coord(1, 0), radixkv.Coord(1, 0)},
		"descending":               {radixkv.Coord(2, 0), radixkv.Coord(1, 0)},
		"unknown kind":             {{TokenIndex: 1, Kind: 9}},
		"image without positions":  {radixkv.Image(1, radixkv.Digest{}, 0)},
		"bin too large":            {radixkv.Coord(1, radixkv.BinCount)},
		"height bin too large":     {radixkv.Size(1, 0, radixkv.BinCount)},
		"coordinate with a height": {{TokenIndex: 1, Kind: radixkv.TokenCoord, HeightBin: 1}},
		"coordinate with a digest": {
			{TokenIndex: 1, Kind: radixkv.TokenCoord, Digest: radixkv.Digest{1}},
		},
		"image with a bin": {
			{TokenIndex: 1, Kind: radixkv.TokenImage, PositionCount: 1, Bin: 1},
		},
		"size with many positions":   {{TokenIndex: 1, Kind: radixkv.TokenSize, PositionCount: 2}},
		"the kind of text":           {{TokenIndex: 1}},
		"an image at the same place": {radixkv.Coord(1, 0), radixkv.Image(1, radixkv.Digest{}, 1)},
	}
	for name, items := range cases {
		tokens := radixkv.Tokens{IDs: ids, Items: items}
		t.Run(name, func(t *testing.T) {
			_, err := tokens.PositionCount()
			wants(t, err, radixkv.InvalidArgument)
			_, err = tokens.Regions()
			wants(t, err, radixkv.InvalidArgument)
		})
	}
	_, err := radixkv.BuildTokens(radixkv.Tokens{IDs: ids, Items: cases["unknown kind"]})
	wants(t, err, radixkv.InvalidArgument)
}
