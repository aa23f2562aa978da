// run cuda: fuse
// a is read by the sum and by the division: it is computed once and written beside exp's group.
func.func @main(%x: f32[n, 8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
  %a = exp(%x) : (f32[n, 8]) -> f32[n, 8]
  %s = sum(%a) {axis = 1 : i64} : (f32[n, 8]) -> f32[n, 1]
  %d = div(%a, %s) : (f32[n, 8], f32[n, 1]) -> f32[n, 8]
  return %d : f32[n, 8]
}

// gives
module {
  func.func @main(%arg0: f32[n, 8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = fused(%arg0) ({
    ^bb0(%arg1: f32[n, 8]):
      %3 = exp(%arg1) : (f32[n, 8]) -> f32[n, 8]
      yield(%3) : (f32[n, 8]) -> ()
    }) : (f32[n, 8]) -> f32[n, 8]
    %1 = fused(%0) ({
    ^bb0(%arg1: f32[n, 8]):
      %3 = sum(%arg1) {axis = 1 : i64} : (f32[n, 8]) -> f32[n, 1]
      yield(%3) : (f32[n, 1]) -> ()
    }) : (f32[n, 8]) -> f32[n, 1]
    %2 = fused(%0, %1) ({
    ^bb0(%arg1: f32[n, 8], %arg2: f32[n, 1]):
      %3 = div(%arg1, %arg2) : (f32[n, 8], f32[n, 1]) -> f32[n, 8]
      yield(%3) : (f32[n, 8]) -> ()
    }) : (f32[n, 8], f32[n, 1]) -> f32[n, 8]
    return %2 : f32[n, 8]
  }
}
