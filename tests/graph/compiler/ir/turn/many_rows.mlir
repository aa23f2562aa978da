// run cuda: turn, fuse
// Known rows that are many: the product takes longer than the transposition in front of it.
func.func @main(%x: f32[4, 512, 8], %w: f32[8, 4]) -> f32[4, 512, 4] attributes {heddle.symbols = {}} {
  %a = matmul(%x, %w) {precision = "tf32"} : (f32[4, 512, 8], f32[8, 4]) -> f32[4, 512, 4]
  return %a : f32[4, 512, 4]
}

// gives
module {
  func.func @main(%arg0: f32[4, 512, 8], %arg1: f32[8, 4]) -> f32[4, 512, 4] attributes {heddle.symbols = {}} {
    %0 = fused(%arg1) ({
    ^bb0(%arg2: f32[8, 4]):
      %2 = transpose(%arg2) {permutation = array<i64: 1, 0>} : (f32[8, 4]) -> f32[4, 8]
      yield(%2) : (f32[4, 8]) -> ()
    }) : (f32[8, 4]) -> f32[4, 8]
    %1 = fused(%arg0, %0) ({
    ^bb0(%arg2: f32[4, 512, 8], %arg3: f32[4, 8]):
      %2 = transpose(%arg3) {permutation = array<i64: 1, 0>} : (f32[4, 8]) -> f32[8, 4]
      %3 = matmul(%arg2, %2) {precision = "tf32"} : (f32[4, 512, 8], f32[8, 4]) -> f32[4, 512, 4]
      yield(%3) : (f32[4, 512, 4]) -> ()
    }) : (f32[4, 512, 8], f32[4, 8]) -> f32[4, 512, 4]
    return %1 : f32[4, 512, 4]
  }
}
