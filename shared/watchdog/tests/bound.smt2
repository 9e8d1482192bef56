; The last grant, in seconds of the controller's clock. `lemma` and `variant` of tests/bound.rs add what they assume and ask.
(set-logic ALL)
(declare-const W Real) (declare-const g Real) (declare-const rho Real) (declare-const R Real) (declare-const P Real)
(assert (and (> W 0) (>= g 0) (>= rho 0) (>= R 0) (>= P 0)))
; One period of the device, at most, without a pause of the machine.
(define-fun D () Real (* (+ W g) (+ 1 rho)))

; Round k-1 was petted, round k sent, committed, seen by the controller, acknowledged and petted. The device fires at `dies`, and
; `ended` is when nothing runs and nothing is in flight any more.
(declare-const before Real) (declare-const sent Real) (declare-const committed Real) (declare-const seen Real)
(declare-const pet Real) (declare-const closed Real) (declare-const dies Real) (declare-const ended Real)
; Pauses of the machine in the three periods.
(declare-const P1 Real) (declare-const P2 Real) (declare-const P3 Real)
(assert (and (>= P1 0) (>= P2 0) (>= P3 0) (<= (+ P1 P2 P3) P)))

(assert (<= sent committed seen))
(assert (<= committed pet))
; A pet reaches a device that has not fired.
(assert (<= before pet (+ before D P1)))
(assert (<= dies ended (+ dies R)))
